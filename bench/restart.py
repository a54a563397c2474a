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
from typing import Any, NamedTuple

from bench.arguments import add_repetitions, at_least_one, new_parser
from bench.ett import parse_counts
from bench.ett_check import differing_losses, read_starts
from bench.ett_launch import TORCHRUN, Steps, run_job
from bench.ett_report import start_rows
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import duration, ratio, table
from fastplan.ett.arithmetic import AttemptReport, read_report

PREPARING = Steps(last=3, saved=1, killed=2)
LAUNCHERS = {"torchrun": TORCHRUN, "run": "fastplan.launch"}
SHOWN = {"torchrun": "torchrun", "run": "fastplan run"}
KINDS = {"recovery": slice(1, None), "first start": slice(0, 1)}  # of the starts of a job
FILE = "restart.json"

Cell = dict[str, Any]


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
    parser.add_argument(
        "--kills", type=at_least_one, default=3, metavar="N", help="recoveries per job (default 3)"
    )
    add_repetitions(parser, 2, "jobs of each side")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Sides take turns, and every other repetition begins with the other one."""
    steps = Steps(last=12, saved=4, killed=8, kills=arguments.kills)
    cells = []
    with TemporaryDirectory(prefix="fastplan-restart-") as directory:
        for ranks in arguments.ranks:
            kept = _prepare(arguments.tables, ranks, Path(directory) / f"before-{ranks}")
            for repetition in range(arguments.repetitions):
                own = Path(directory) / f"{ranks}-{repetition}"
                job = _Job(arguments.tables, ranks, steps, kept)
                cells.append(_cell(job, repetition, own))
    return {"tables": arguments.tables, "kills": arguments.kills, "cells": cells}


class _Job(NamedTuple):
    tables: int
    ranks: int
    steps: Steps
    kept: Path  # what an earlier job has left


def _prepare(tables: int, ranks: int, own: Path) -> Path:
    """Runs a job that leaves a start bundle, and returns the folder of what it kept."""
    with Progress(f"{tables} tables, {ranks} ranks: the job that leaves the bundle"):
        run_job("bundle", tables, ranks, PREPARING, own)
    return own / "kept"


def _cell(job: _Job, repetition: int, folder: Path) -> dict[str, Any]:
    found, wrong = {}, []
    sides = list(LAUNCHERS)[:: -1 if repetition % 2 else 1]
    folders = {side: folder / side for side in sides}
    for side, own in folders.items():
        before = _cpu_seconds()
        with Progress(f"{job.tables} tables, {job.ranks} ranks: {SHOWN[side]}, {repetition + 1}"):
            run_job(
                "bundle",
                job.tables,
                job.ranks,
                job.steps,
                own,
                launcher=LAUNCHERS[side],
                kept_before=job.kept,
            )
        found[side] = {
            "cpu": _cpu_seconds() - before,
            "starts": [_start(attempt) for attempt in read_report(own / "runs").attempts],
        }
        wrong += _repeated_work(side, own, job)
    wrong += differing_losses(folders, job.ranks, job.steps)
    return {"ranks": job.ranks, "repetition": repetition, "jobs": found, "differences": wrong}


def _start(attempt: AttemptReport) -> dict[str, Any]:
    return {"to_first_step": attempt.to_first_step, "until_first_step": attempt.until_first_step}


def _repeated_work(side: str, own: Path, job: _Job) -> list[str]:
    """A line per rank that searched for a plan or compiled, although the bundle has both."""
    return [
        f"{side}, attempt {attempt}, rank {rank}: it searched or compiled"
        for attempt in range(job.steps.kills + 1)
        for rank, start in enumerate(read_starts(own, attempt, job.ranks))
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
        parts.append(f"\n{ranks} gloo ranks: median (least - most)")
        parts += [f"\n{_phases(cells, kind)}" for kind in KINDS]
        used = {side: [cell["jobs"][side]["cpu"] for cell in cells] for side in SHOWN}
        rows = [[SHOWN[side], spread(seconds)] for side, seconds in used.items()]
        parts.append(f"\n{table(['CPU time of the job', ''], rows)}")
    wrong = [line for cell in result["cells"] for line in cell["differences"]]
    parts.append("\n" + ("\n".join(wrong) or "all losses are the same to the bit, on both sides"))
    return "\n".join(parts)


def _phases(cells: list[Cell], kind: str) -> str:
    """A column per side: the time by phase until the first step of a start ends."""
    rows = []
    for title, names in start_rows().items():
        times = [phase_seconds(cells, side, kind, names) for side in SHOWN]
        if any(times):
            rows.append([title, *map(duration, times), ""])
    whole = [to_first_step(cells, side, kind) for side in SHOWN]
    rows.append(["total", *map(spread, whole), speedup(cells, kind)])
    return table(
        [f"{kind}, n = {len(whole[0])}, to the first step", *SHOWN.values(), "faster"], rows
    )


def _starts(cells: list[Cell], side: str, kind: str) -> list[dict[str, Any]]:
    """The first start of each job, or all others."""
    return [start for cell in cells for start in cell["jobs"][side]["starts"][KINDS[kind]]]


def phase_seconds(cells: list[Cell], side: str, kind: str, names: tuple[str, ...]) -> float:
    """The median of the time of these phases in a start."""
    found = [start["until_first_step"] for start in _starts(cells, side, kind)]
    return statistics.median(sum(each.get(name, 0.0) for name in names) for each in found)


def to_first_step(cells: list[Cell], side: str, kind: str) -> list[float]:
    """Seconds from the begin of a start to the end of its first step."""
    return [start["to_first_step"] for start in _starts(cells, side, kind)]


def speedup(cells: list[Cell], kind: str) -> str:
    """The ratio of medians, and the least and the most of the pairs."""
    before, after = (to_first_step(cells, side, kind) for side in LAUNCHERS)
    pairs = [old / new for old, new in zip(before, after, strict=True)]
    middle = statistics.median(before) / statistics.median(after)
    return f"{ratio(middle)} ({ratio(min(pairs))} - {ratio(max(pairs))})"


def spread(values: list[float]) -> str:
    """The median, and the least and the most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{duration(middle)} ({duration(least)} - {duration(most)})"


if __name__ == "__main__":
    sys.exit(main())
