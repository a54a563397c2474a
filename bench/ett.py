"""The cost of starts and recoveries in a real job, and the time that fastplan saves.

A small DLRM with a compiled dense part trains under torchrun on gloo ranks. It saves a checkpoint,
a rank is killed, and all ranks start again and continue. The variants are stock TorchRec,
TorchRec's PlanLoader, fastplan, fastplan's plan cache and a start bundle, with the same model, the
same data and the same losses to the bit. The plan loader has its plan from the first start on.
Cache and bundle contain what the job's own first start saved. torch's compile cache is empty at
every start. All figures come from the job's own record (`fastplan.ett`).
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.arguments import add_repetitions, new_parser
from bench.ett_check import differing_losses, read_starts, wrong_starts
from bench.ett_launch import Steps, run_job
from bench.ett_report import SHOWN, checks, digest, report
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load
from fastplan.ett.html import html_report

STEPS = Steps(last=40, saved=20, killed=30)
PAGES = Path("build") / "ett"
FILE = "ett.json"


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.ett", __doc__)
    parser.add_argument("--tables", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--ranks",
        type=parse_counts,
        default=[4],
        metavar="COUNTS",
        help="numbers of ranks, e.g. 2,4 (default 4)",
    )
    parser.add_argument(
        "--variants", nargs="+", choices=SHOWN, default=list(SHOWN), help="default: all"
    )
    add_repetitions(parser, 1, "runs of everything")
    parser.add_argument(
        "--pages",
        type=Path,
        default=PAGES,
        metavar="DIR",
        help=f"folder for a page per job of the first repetition (default {PAGES})",
    )
    add_arguments(parser, FILE)
    return parser.parse_args()


def parse_counts(text: str) -> list[int]:
    """The numbers of `2,4`."""
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if 0 in counts:
        raise argparse.ArgumentTypeError(f"{text!r} must be counts of at least 1, e.g. 2,4")
    return counts


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Repetitions are the outer loop, so that a slow minute of the machine affects all variants."""
    cells = [
        _cell(arguments, ranks, repetition)
        for repetition in range(arguments.repetitions)
        for ranks in arguments.ranks
    ]
    print(f"a page per job is in {arguments.pages}", file=sys.stderr)
    return {
        "tables": arguments.tables,
        "steps": {"all": STEPS.last, "saved": STEPS.saved, "killed": STEPS.killed},
        "cells": cells,
        "checks": checks(cells),
    }


def _cell(arguments: argparse.Namespace, ranks: int, repetition: int) -> dict[str, Any]:
    """Runs all variants of the job on this number of ranks, one after the other."""
    found, wrong = {}, []
    with TemporaryDirectory(prefix="fastplan-ett-") as directory:
        folders = {variant: Path(directory) / variant for variant in arguments.variants}
        for variant, own in folders.items():
            words = f"{arguments.tables} tables, {ranks} ranks: {SHOWN[variant]}"
            with Progress(f"{words}, {repetition + 1} of {arguments.repetitions}"):
                run_job(variant, arguments.tables, ranks, STEPS, own)
            job = load(own / "runs")
            job.source = words
            told = job_report(job)
            starts = [read_starts(own, attempt, ranks) for attempt in (0, 1)]
            found[variant] = digest(told, starts)
            wrong += wrong_starts(variant, own, ranks)
            if repetition == 0:
                arguments.pages.mkdir(parents=True, exist_ok=True)
                page = arguments.pages / f"{ranks}-ranks-{variant}.html"
                page.write_text(html_report(job, told), encoding="utf-8")
        wrong += differing_losses(folders, ranks, STEPS)
    return {"ranks": ranks, "repetition": repetition, "jobs": found, "differences": wrong}


if __name__ == "__main__":
    sys.exit(main())
