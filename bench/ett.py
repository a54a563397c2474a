"""What planning costs a real job, and what fastplan saves of it.

A small DLRM is trained under torchrun on gloo ranks: it saves a checkpoint, a rank is killed, all
of them start again and go on. It runs as TorchRec stock, with TorchRec's PlanLoader, with fastplan
and with fastplan's cache: the same model, the same data, the same losses to the bit. All figures
are what the job has recorded of itself (`fastplan.ett`).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.ett_check import differing_losses
from bench.ett_report import SHOWN, checks, report
from bench.machine import describe
from bench.planning import RESULTS
from bench.progress import Progress
from fastplan.ett.arithmetic import account
from fastplan.ett.building import load
from fastplan.ett.html import html_report
from fastplan.ett.report_text import report_json

STEPS, SAVE, KILL = 120, 60, 90


def main() -> int:
    arguments = _arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    cells = [
        _measure(arguments, ranks, repetition)
        for repetition in range(arguments.repetitions)
        for ranks in arguments.ranks
    ]
    result = {
        **describe(),
        "tables": arguments.tables,
        "steps": {"all": STEPS, "saved": SAVE, "killed": KILL},
        "cells": cells,
        "checks": checks(cells),
    }
    print(report(result))
    (arguments.output / "ett.json").write_text(json.dumps(result, indent=2) + "\n")
    return 1 if any(cell["differences"] for cell in cells) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ett",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tables", type=int, default=200, metavar="N", help="default 200")
    parser.add_argument(
        "--ranks",
        type=_counts,
        default=[2, 4],
        metavar="COUNTS",
        help="numbers of ranks (default 2,4)",
    )
    parser.add_argument(
        "--variants", nargs="+", choices=SHOWN, default=list(SHOWN), help="default: all"
    )
    parser.add_argument(
        "--repetitions", type=int, default=1, metavar="N", help="runs of everything (default 1)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="where ett.json and the pages go (default bench/results)",
    )
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if 0 in counts:
        raise argparse.ArgumentTypeError(f"{text!r} must be counts of at least 1, e.g. 2,4")
    return counts


def _measure(arguments: argparse.Namespace, ranks: int, repetition: int) -> dict[str, Any]:
    """All variants of the job on so many ranks, one after the other."""
    with TemporaryDirectory(prefix="fastplan-ett-") as directory:
        folder = Path(directory)
        _prepare(arguments.tables, ranks, folder / "known")
        found = {}
        for variant in arguments.variants:
            words = f"{arguments.tables} tables, {ranks} ranks: {SHOWN[variant]}"
            with Progress(words):
                _run_job(variant, arguments.tables, ranks, folder)
            job = load(folder / variant / "runs")
            job.source = words
            told = account(job)
            found[variant] = report_json(told)
            if repetition == 0:
                page = arguments.output / f"ett-{ranks}-{variant}.html"
                page.write_text(html_report(job, told), encoding="utf-8")
        wrong = differing_losses(
            {name: folder / name for name in found}, ranks, (SAVE, KILL, STEPS)
        )
    return {"ranks": ranks, "repetition": repetition, "jobs": found, "differences": wrong}


def _prepare(tables: int, ranks: int, known: Path) -> None:
    """What an earlier start would have left: a plan in the cache, and one for a plan loader."""
    code = (
        "import sys, pathlib, fastplan\n"
        "from bench import ett_job\n"
        "known, tables, ranks = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])\n"
        "planner = ett_job.planner('cached', ranks, known)\n"
        "plan = planner.plan(ett_job.build(tables), ett_job.sharders())\n"
        "fastplan.save_plan(plan, known / 'plan.json')\n"
    )
    known.mkdir()
    words = [sys.executable, "-W", "ignore", "-c", code, str(known), str(tables), str(ranks)]
    subprocess.run(words, check=True, env=_environment(), stderr=subprocess.DEVNULL)


def _run_job(variant: str, tables: int, ranks: int, folder: Path) -> None:
    own = folder / variant
    own.mkdir()
    torchrun = ["torch.distributed.run", f"--nproc-per-node={ranks}", "--max-restarts=1"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    job = ["bench.ett_job", f"--variant={variant}", f"--tables={tables}", f"--steps={STEPS}"]
    job += [f"--save={SAVE}", f"--kill={KILL}", f"--known={folder / 'known'}", f"--folder={own}"]
    environment = _environment(FASTPLAN_ETT=str(own / "runs"))
    with (own / "log").open("w") as log:
        environment["FASTPLAN_ETT_LAUNCHED"] = str(time.time())
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", *torchrun, "-m", *job],
            env=environment,
            stdout=log,
            stderr=log,
        )
    if done.returncode:
        raise SystemExit(f"the job failed:\n{(own / 'log').read_text()[-4000:]}")


def _environment(**more: str) -> dict[str, str]:
    fixed = {
        "PYTHONHASHSEED": "0",  # TorchRec's choice between equal plans depends on it
        "OMP_NUM_THREADS": "1",
        # Else a restart finds the addresses of the dead in the store that outlives them.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    return {**os.environ, **fixed, **more}


if __name__ == "__main__":
    sys.exit(main())
