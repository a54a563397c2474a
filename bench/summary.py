"""The first ten lines of docs/results.md: what all benchmarks showed."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from bench.parts import PARTS
from bench.restart import to_first_step
from bench.text import duration, ratio

Result = dict[str, Any]


def summary(results: dict[str, Result]) -> str:
    """A line per subject, from the results by name; subjects without results are left out."""
    found = [
        f"- **{title}**: {line(results[name])}" for title, name, line in _LINES if name in results
    ]
    return "\n".join([*found, f"- **Goals**: {_goals(results)}"])


def _planning(result: Result) -> str:
    both = [cell for cell in result["cells"] if cell["ratio"] is not None]
    low, high = min(both, key=_ratio), max(both, key=_ratio)
    same = sum(cell["identical"] for cell in both)
    return (
        f"{ratio(low['ratio'])} ({_size(low)}) to {ratio(high['ratio'])} ({_size(high)}) faster "
        f"than TorchRec's planner, and the same plan in {same} of {len(both)} cells."
    )


def _large(result: Result) -> str:
    shown = ((1000, 64), (1000, 1024), (10000, 1024))
    cells = [cell for cell in result["cells"] if (cell["tables"], cell["ranks"]) in shown]
    return (
        ", ".join(f"{_size(c)} in {duration(c['fastplan']['median_seconds'])}" for c in cells) + "."
    )


def _restart(result: Result) -> str:
    cell = max(
        (c for c in result["hits"] if "median_seconds" in c["torchrec"]["loader"]), key=_tables
    )
    hit = cell["fastplan"]["directory"]["median_seconds"]
    loader = cell["torchrec"]["loader"]["median_seconds"]
    return (
        f"a hit in the plan cache takes {duration(hit)} at {_size(cell)}, TorchRec's `PlanLoader` "
        f"{duration(loader)}."
    )


def _better(result: Result) -> str:
    own, torchrec = [], []
    for row in result["rows"]:
        entry = next(each for each in row["fastplan"] if each["budget_seconds"] == 1)
        own.append(entry["rating"] / row["bound"] - 1)
        torchrec.append(row["torchrec"]["default"] / row["bound"] - 1)
    return (
        f"ratings are {100 * statistics.median(own):.2f} % above a proven bound after one second "
        f"(median of {len(own)} models), TorchRec's {100 * statistics.median(torchrec):.1f} %."
    )


def _replan(result: Result) -> str:
    rows = [row for row in result["changes"] if not row["host_lost"]]
    own, torchrec = (
        statistics.median(row[side]["moved"] / row["bytes"] for row in rows)
        for side in ("replan", "torchrec")
    )
    return (
        f"a changed model moves {100 * own:.2f} % of its bytes, and {100 * torchrec:.0f} % with a "
        f"plan from scratch (medians, n = {len(rows)})."
    )


def _costs(result: Result) -> str:
    rows = [row for row in result["rows"] if row["left_out"] and row["n"] >= 4]
    medians = [(row["torchrec"]["median"], row["left_out"]["median"]) for row in rows]
    theirs, own = (statistics.median(side) for side in zip(*medians, strict=True))
    return (
        f"published times differ from the hardware costs by a factor of {own:.2f}, from TorchRec's "
        f"constants by {theirs:.0f} (medians over {len(rows)} groups; constants fitted without the "
        "configuration)."
    )


def _stopwatch(result: Result) -> str:
    found = result["summary"]
    default, calibrated = (
        found["speed_up"][f"TorchRec {side}"] for side in ("default", "calibrated")
    )
    return (
        f"measured steps on two emulated hosts of CPU ranks are {default:.2f} x as fast as with "
        f"TorchRec's plans, and {calibrated:.2f} x as fast as with its plans for calibrated costs "
        f"(geometric means of {found['models']} models). No GPU was measured."
    )


def _offload(result: Result) -> str:
    rows = [row for row in result["rows"] if row["scaleup"] is not None and row["bytes"]]
    gain = statistics.median(row["scaleup"] / row["bytes"] for row in rows)
    alone = sum(row["scaleup"] is None for row in result["rows"])
    return (
        f"TorchRec's scale-up proposer moves {gain:.2f} x the bytes over host links (median of "
        f"{len(rows)} simulated cases), and has no plan in {alone} others."
    )


def _recovery(result: Result) -> str:
    found = []
    for ranks in sorted({cell["ranks"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["ranks"] == ranks]
        usual, own = (
            statistics.median(to_first_step(cells, side, "recovery"))
            for side in ("torchrun", "run")
        )
        found.append(f"{usual / own:.2f} x on {ranks} ranks")
    return f"workers without imports recover faster: {', '.join(found)}."


_LINES: tuple[tuple[str, str, Callable[[Result], str]], ...] = (
    ("Planning time", "planning", _planning),
    ("Large models", "planning", _large),
    ("Restarts", "cache", _restart),
    ("Better plans", "quality", _better),
    ("Re-plans", "replan", _replan),
    ("Estimates", "costs", _costs),
    ("Steps", "stopwatch", _stopwatch),
    ("Offload", "offload", _offload),
    ("Recoveries", "restart", _recovery),
)


def _goals(results: dict[str, Result]) -> str:
    verdicts = {name: [*_verdicts(result)] for name, result in results.items()}
    missed = [part.title for part in PARTS if not all(verdicts.get(part.name, ()))]
    count = sum(map(len, verdicts.values()))
    rest = f" Missed in: {'; '.join(missed)}." if missed else ""
    held = sum(map(sum, verdicts.values()))
    return f"{held} of {count} goals that benchmarks check by themselves hold.{rest}"


def _verdicts(value: Any) -> Iterator[bool]:
    """Whether each goal of a result holds: in a list of checks, by name, or in its cells."""
    if isinstance(value, list):
        for each in value:
            yield from _verdicts(each)
    elif isinstance(value, dict):
        if value.get("holds") is not None:
            yield value["holds"]
        if isinstance(value.get("checks"), dict):
            yield from value["checks"].values()
        for each in value.values():
            yield from _verdicts(each)


def _ratio(cell: Result) -> float:
    return float(cell["ratio"])


def _tables(cell: Result) -> int:
    return int(cell["tables"])


def _size(cell: Result) -> str:
    return f"{cell['tables']} x {cell['ranks']}"
