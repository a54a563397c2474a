"""What checkpoints lose between plans."""

from typing import Any

from bench.checkpoints import HEADER, VERDICTS, change_rows, optimizer_rows
from bench.figures.markdown import table


def optimizers(result: dict[str, Any]) -> str:
    return table(HEADER, optimizer_rows(result))


def changes(result: dict[str, Any]) -> str:
    return table(HEADER, change_rows(result))


def verdict(result: dict[str, Any]) -> str:
    pairs = sum(run["pairs"] for run in result["runs"])
    theirs = {v: sum(run["torchrec_states"][v] for run in result["runs"]) for v in VERDICTS}
    ours = {v: sum(run["fastplan_states"][v] for run in result["runs"]) for v in VERDICTS}
    return (
        f"Of {pairs:,} loads, TorchRec's own means keep every bit of the states in "
        f"{theirs['same']:,}, refuse {theirs['refused']:,} and load wrong states without an error "
        f"in {theirs['wrong']:,}. fastplan keeps every bit in {ours['same']:,}, refuses "
        f"{ours['refused']:,} before it writes anything, and loads wrong bits in {ours['wrong']:,}."
    )
