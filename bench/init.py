"""Times the start of a rank with the same plan: TorchRec's objects, fastplan's, and patched.

A start is the work of every rank after rank 0 has a plan: it receives the plan (TorchRec unpickles
it, fastplan describes its own tables and rebuilds it) and creates its DistributedModelParallel with
a fused optimizer. A quarter of the tables is row-wise. The ways take turns, each start in a fork.
"""

import argparse
import statistics
import sys
from typing import Any

from bench.arguments import add_grid, at_least_one, new_parser
from bench.init_start import WAYS, Received, in_a_fork, send, start
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import duration, ratio, table

FILE = "init.json"
GRID = "100x16,500x256,1000x1024"
# Starts per way, by cell. The starts of the last cell take a minute.
REPETITIONS = (5, 3, 2)
PHASES = ("receive", "dmp")
# The speed-up that fastplan's plan alone should reach, by cell.
GOALS = {(500, 256): 2.0, (1000, 1024): 3.0}


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    # The first start of a process pays for lazy imports, which forks then share.
    small = send(4, 2)
    for way in WAYS:
        start(way, small)
    counts = zip(arguments.grid, arguments.counts, strict=True)
    return {"cells": [_cell(*cell, count) for cell, count in counts]}


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.init", __doc__)
    add_grid(parser, GRID)
    parser.add_argument(
        "--repetitions",
        type=at_least_one,
        metavar="N",
        help=f"starts of each way in a cell (default {', '.join(map(str, REPETITIONS))})",
    )
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    if arguments.repetitions is None and len(arguments.grid) > len(REPETITIONS):
        parser.error(f"--repetitions is needed for more than {len(REPETITIONS)} cells")
    arguments.counts = [arguments.repetitions or REPETITIONS[i] for i in range(len(arguments.grid))]
    return arguments


def _cell(tables: int, ranks: int, repetitions: int) -> dict[str, Any]:
    with Progress(f"{tables} x {ranks}: the plan"):
        received = in_a_fork(send, tables, ranks)
    starts: dict[str, list[Any]] = {way: [] for way in WAYS}
    for i in range(repetitions):
        for way, shown in WAYS.items():
            with Progress(f"{tables} x {ranks}: start {i + 1} of {repetitions}, {shown}"):
                starts[way].append(in_a_fork(start, way, received))
    ways = {way: _summary(found) for way, found in starts.items()}
    return {
        "tables": tables,
        "ranks": ranks,
        "shards": received.shards,
        "bytes": {"torchrec": len(received.pickled), "fastplan": len(received.record)},
        "n": repetitions,
        "ways": ways,
        "goals": _goals(received, ways),
        "differences": received.differences,
    }


def _summary(starts: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians and all values, for each phase and for their sum."""
    found: dict[str, Any] = {}
    for clock in ("seconds", "cpu_seconds"):
        values = {phase: [one[phase][clock] for one in starts] for phase in PHASES}
        values["start"] = [sum(one[phase][clock] for phase in PHASES) for one in starts]
        for name, each in values.items():
            found.setdefault(name, {})[clock] = each
            found[name][f"median_{clock}"] = statistics.median(each)
    return found


def _goals(received: Received, ways: dict[str, Any]) -> list[dict[str, Any]]:
    """Checks CPU time, because other work on the machine affects it least."""
    goal = GOALS.get((received.tables, received.ranks))
    if goal is None:
        return []
    value = gain(ways, "fastplan")
    text = f"{received.tables} x {received.ranks}: TorchRec's plan relative to fastplan's"
    return [{"text": text, "value": value, "goal": goal, "holds": value >= goal}]


def gain(ways: dict[str, Any], way: str) -> float:
    """How many times as long a start with TorchRec's plan takes."""
    theirs, ours = (ways[name]["start"]["median_cpu_seconds"] for name in ("torchrec", way))
    return float(theirs / ours)


def _report(result: dict[str, Any]) -> str:
    cells = result["cells"]
    rows = [
        [
            f"{cell['tables']} x {cell['ranks']}, {shown}",
            duration(found["receive"]["median_cpu_seconds"]),
            duration(found["dmp"]["median_cpu_seconds"]),
            duration(found["start"]["median_cpu_seconds"]),
            str(cell["n"]),
            duration(min(found["start"]["cpu_seconds"])),
            duration(max(found["start"]["cpu_seconds"])),
            duration(found["start"]["median_seconds"]),
            ratio(gain(cell["ways"], way)),
        ]
        for cell in cells
        for way, shown in WAYS.items()
        for found in [cell["ways"][way]]
    ]
    header = [
        "CPU time",
        "receive",
        "DMP",
        "start",
        "n",
        "min",
        "max",
        "elapsed",
        "TorchRec / this",
    ]
    lines = [table(header, rows), ""]
    for cell in cells:
        sizes = cell["bytes"]
        lines.append(
            f"{cell['tables']} x {cell['ranks']}: {cell['shards']} shards, "
            f"{sizes['torchrec']} bytes sent by TorchRec, {sizes['fastplan']} by fastplan; plans "
            + ("are identical." if not cell["differences"] else f"DIFFER: {cell['differences']}")
        )
        lines += [
            f"{goal['text']}: {goal['value']:.2f} (at least {goal['goal']:g}: "
            + ("holds)" if goal["holds"] else "DOES NOT HOLD)")
            for goal in cell["goals"]
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
