"""How long a restart takes if workers are forks of a process that has imported everything.

The job of bench/ett.py trains under torchrun and under `fastplan run`, in turns. A rank is killed,
and all ranks start again. Both sides have the same start bundle from the beginning, so neither
plans nor compiles. All times come from the job's own record (`fastplan.ett`); the CPU time is that
of all processes of the job.
"""

import argparse
import resource
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.arguments import add_repetitions, new_parser
from bench.ett import parse_counts
from bench.ett_check import differing_losses, read_starts
from bench.ett_launch import TORCHRUN, Steps, run_job
from bench.ett_report import start_rows
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import duration, ratio, table
from fastplan.ett.arithmetic import AttemptReport, read_report

STEPS = Steps(last=12, saved=4, killed=8)
LAUNCHERS = {"torchrun": TORCHRUN, "run": "fastplan.launch"}
SHOWN = {"torchrun": "torchrun", "run": "fastplan run"}
STARTS = ("first start", "recovery")
FILE = "restart.json"


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.restart", __doc__)
    parser.add_argument("--tables", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--ranks",
        type=parse_counts,
        default=[2, 4],
        metavar="COUNTS",
        help="numbers of ranks, e.g. 2,4 (default 2,4)",
    )
    add_repetitions(parser, 5, "jobs of each side")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Sides take turns, and each repetition begins with the other one."""
    cells = []
    with TemporaryDirectory(prefix="fastplan-restart-") as directory:
        for ranks in arguments.ranks:
            kept = _prepare(arguments.tables, ranks, Path(directory) / f"before-{ranks}")
            for repetition in range(arguments.repetitions):
                cells.append(
                    _cell(
                        arguments.tables,
                        ranks,
                        repetition,
                        kept,
                        Path(directory) / f"{ranks}-{repetition}",
                    )
                )
    return {
        "tables": arguments.tables,
        "steps": {"all": STEPS.last, "saved": STEPS.saved, "killed": STEPS.killed},
        "cells": cells,
    }


def _prepare(tables: int, ranks: int, own: Path) -> Path:
    """Runs a job that leaves a start bundle, and returns the folder of what it kept."""
    with Progress(f"{tables} tables, {ranks} ranks: the job that leaves the bundle"):
        run_job("bundle", tables, ranks, STEPS, own)
    return own / "kept"


def _cell(tables: int, ranks: int, repetition: int, kept: Path, folder: Path) -> dict[str, Any]:
    found, wrong = {}, []
    sides = list(LAUNCHERS)[:: -1 if repetition % 2 else 1]
    folders = {side: folder / side for side in sides}
    for side, own in folders.items():
        before = _cpu_seconds()
        with Progress(f"{tables} tables, {ranks} ranks: {SHOWN[side]}, {repetition + 1}"):
            run_job("bundle", tables, ranks, STEPS, own, launcher=LAUNCHERS[side], kept_before=kept)
        report = read_report(own / "runs")
        found[side] = {
            "cpu": _cpu_seconds() - before,
            "starts": [_start(attempt) for attempt in report.attempts],
        }
        wrong += _repeated_work(side, own, ranks)
    wrong += differing_losses(folders, ranks, STEPS)
    return {"ranks": ranks, "repetition": repetition, "jobs": found, "differences": wrong}


def _start(attempt: AttemptReport) -> dict[str, Any]:
    return {"to_first_step": attempt.to_first_step, "until_first_step": attempt.until_first_step}


def _repeated_work(side: str, own: Path, ranks: int) -> list[str]:
    """A line per rank that searched for a plan or compiled, although the bundle has both."""
    return [
        f"{side}, attempt {attempt}, rank {rank}: it searched or compiled"
        for attempt in (0, 1)
        for rank, start in enumerate(read_starts(own, attempt, ranks))
        if start["searched"] or start["misses"]
    ]


def _cpu_seconds() -> float:
    """The CPU time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(result: dict[str, Any]) -> str:
    """The whole result as text."""
    parts = [f"{result['tables']} tables; {result['cpu_count']} x {result['cpu']}"]
    for ranks in sorted({cell["ranks"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["ranks"] == ranks]
        parts.append(f"\n{ranks} gloo ranks, n = {len(cells)}: median (least - most)")
        parts += [f"\n{_phases(cells, number)}" for number in range(len(STARTS))]
        rows = [
            [SHOWN[side], spread([cell["jobs"][side]["cpu"] for cell in cells])] for side in SHOWN
        ]
        parts.append(f"\n{table(['CPU time of the job', ''], rows)}")
    wrong = [line for cell in result["cells"] for line in cell["differences"]]
    parts.append("\n" + ("\n".join(wrong) or "all losses are the same to the bit, on both sides"))
    return "\n".join(parts)


def _phases(cells: list[dict[str, Any]], number: int) -> str:
    """A column per side: the time by phase until the first step of an attempt ends."""
    rows = []
    for title, names in start_rows().items():
        times = [
            statistics.median(
                sum(_until(cell, side, number).get(name, 0.0) for name in names) for cell in cells
            )
            for side in SHOWN
        ]
        if any(times):
            rows.append([title, *map(duration, times), ""])
    whole = {side: to_first_step(cells, side, number) for side in SHOWN}
    rows.append(["total", *map(spread, whole.values()), speedup(cells, number)])
    return table([f"{STARTS[number]}, to the first step", *SHOWN.values(), "faster"], rows)


def _until(cell: dict[str, Any], side: str, number: int) -> dict[str, float]:
    found: dict[str, float] = cell["jobs"][side]["starts"][number]["until_first_step"]
    return found


def to_first_step(cells: list[dict[str, Any]], side: str, number: int) -> list[float]:
    """Seconds from the begin of an attempt to the end of its first step, of each job."""
    return [cell["jobs"][side]["starts"][number]["to_first_step"] for cell in cells]


def speedup(cells: list[dict[str, Any]], number: int) -> str:
    """The ratio of medians, and the least and the most of the pairs."""
    before, after = (to_first_step(cells, side, number) for side in LAUNCHERS)
    pairs = [old / new for old, new in zip(before, after, strict=True)]
    middle = statistics.median(before) / statistics.median(after)
    return f"{ratio(middle)} ({ratio(min(pairs))} - {ratio(max(pairs))})"


def spread(values: list[float]) -> str:
    """The median, and the least and the most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{duration(middle)} ({duration(least)} - {duration(most)})"


if __name__ == "__main__":
    sys.exit(main())
