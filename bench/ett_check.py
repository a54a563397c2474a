"""Checks that runs of a job have the same losses, and reused exactly what they should."""

import json
from pathlib import Path
from typing import Any

from bench.ett_launch import Steps


def differing_losses(folders: dict[str, Path], ranks: int, steps: Steps) -> list[str]:
    """A line per difference between variants, or between a step and the same after a restart."""
    wrong = []
    expected: dict[tuple[int, int], str] = {}
    for variant, folder in folders.items():
        for rank in range(ranks):
            for attempt in range(steps.kills + 1):
                losses = _losses(folder / f"losses.{attempt}.{rank}")
                begin = steps.saved + 1 if attempt else 1
                end = steps.killed if attempt < steps.kills else steps.last
                if sorted(losses) != list(range(begin, end + 1)):
                    wrong.append(f"{variant}, rank {rank}: attempt {attempt} has other steps")
                for step, loss in losses.items():
                    if expected.setdefault((rank, step), loss) != loss:
                        wrong.append(f"{variant}, rank {rank}, step {step}: another loss")
    return wrong


def wrong_starts(variant: str, folder: Path, ranks: int) -> list[str]:
    """A line per start that repeated work it should have reused, or reused too much."""
    first, second = (read_starts(folder, attempt, ranks) for attempt in (0, 1))
    wrong = []
    if not sum(start["misses"] for start in first):
        wrong.append(f"{variant}: the first start compiled nothing")
    if variant in ("cached", "bundle") and second[0]["searched"]:
        wrong.append(f"{variant}: the restart searched for a plan")
    if variant != "bundle":
        if not sum(start["misses"] for start in second):
            wrong.append(f"{variant}: the restart found compiled code, although no start saved any")
        return wrong
    for rank, start in enumerate(second):
        if start["misses"] or not start["hits"]:
            wrong.append(
                f"{variant}, rank {rank}: the restart compiled {start['misses']} graphs and found "
                f"{start['hits']}"
            )
        wrong += [f"{variant}, rank {rank}: {note}" for note in start["notes"]]
    # Another build would have different bytes, because they depend on the folder's name.
    before, after = (_libraries(folder / f"compiled.{attempt}") for attempt in (0, 1))
    built = [name for name, data in after.items() if before.get(name) != data]
    wrong += [f"{variant}: the restart built {name}" for name in built]
    return wrong


def read_starts(folder: Path, attempt: int, ranks: int) -> list[dict[str, Any]]:
    """Reads what each rank of an attempt reported about its start."""
    return [json.loads((folder / f"start.{attempt}.{rank}").read_text()) for rank in range(ranks)]


def _losses(path: Path) -> dict[int, str]:
    """Losses by step. The last line of a killed process may be incomplete."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.split() for line in lines]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}


def _libraries(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.so")}
