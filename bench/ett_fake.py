"""Starts on many ranks of which only one runs: planning, and DMP with torch's fake process group.

No other rank exists and nothing is sent: the benchmark times the work of rank 0 alone. Every start
is a new process, because the first plan and the first DMP of a process pay for lazy imports. The
plans of all variants are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.arguments import add_grid, add_repetitions, new_parser
from bench.ett_report import SHOWN, shown
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import duration, ratio, table

GRID = "26x64,26x256"
LIMIT = 60.0
FILE = "ett_fake.json"
# A bundle is not a separate planner: its plans come from a cache in memory.
VARIANTS = [variant for variant in SHOWN if variant != "bundle"]


def main() -> int:
    arguments = _arguments()
    if arguments.one is not None:
        variant, tables, ranks, kept = arguments.one
        print(json.dumps(_start(variant, int(tables), int(ranks), Path(kept))))
        return 0
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.ett_fake", __doc__)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    add_grid(parser, GRID)
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, default=VARIANTS, help="default: all"
    )
    add_repetitions(parser, 1, "runs of everything")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help="time limit of a start; a variant that takes longer is skipped from then on "
        f"(default {LIMIT:g})",
    )
    add_arguments(parser, FILE)
    return parser.parse_args()


def _start(variant: str, tables: int, ranks: int, kept: Path) -> dict[str, Any]:
    """Seconds of planning and of DMP in this new process."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from bench import ett_model
    from bench.runs import quiet

    with quiet():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        module, sharders = ett_model.build(tables), ett_model.sharders()
        planner = ett_model.planner(variant, ranks, kept, module=module)
        begin = time.perf_counter()
        plan = planner.plan(module, sharders)
        planned = time.perf_counter()
        DistributedModelParallel(module, plan=plan, sharders=sharders, init_data_parallel=False)
        ended = time.perf_counter()
        if variant == "fastplan":
            # For the variants that have a stored plan.
            import fastplan

            ett_model.planner("cached", ranks, kept).plan(ett_model.build(tables), sharders)
            fastplan.save_plan(plan, kept / "plan.json")
    return {"plan": planned - begin, "dmp": ended - planned, "digest": _digest(plan)}


def _digest(plan: Any) -> str:
    """A digest that is equal for equal plans in any process."""
    from bench.identity import shard_rows

    placed = [
        (path, name, item.sharding_type, item.compute_kernel, item.ranks, shard_rows(item))
        for path, part in plan.plan.items()
        for name, item in part.items()
    ]
    return hashlib.blake2b(repr(sorted(placed)).encode(), digest_size=16).hexdigest()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    given_up: set[str] = set()
    cells = [_cell(tables, ranks, arguments, given_up) for tables, ranks in arguments.grid]
    return {"limit_seconds": arguments.limit, "cells": cells}


def _cell(
    tables: int, ranks: int, arguments: argparse.Namespace, given_up: set[str]
) -> dict[str, Any]:
    # fastplan always runs first: other variants load the plan that it saves.
    variants = dict.fromkeys(["fastplan", *arguments.variants])
    starts: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    with TemporaryDirectory(prefix="fastplan-ett-") as kept:
        for repetition in range(arguments.repetitions):
            for variant in variants:
                if variant in given_up:
                    continue
                words = f"{tables} x {ranks}, fake: {SHOWN[variant]}"
                with Progress(f"{words}, {repetition + 1} of {arguments.repetitions}"):
                    found = _run([variant, str(tables), str(ranks), kept], arguments.limit)
                if found is None:
                    given_up.add(variant)
                    starts[variant].clear()
                else:
                    starts[variant].append(found)
    if not starts["fastplan"]:
        raise SystemExit(f"{tables} x {ranks}: fastplan itself takes longer than --limit")
    expected = starts["fastplan"][0]["digest"]
    different = [
        f"{tables} x {ranks}: {SHOWN[variant]} has another plan than fastplan"
        for variant, runs in starts.items()
        if any(run["digest"] != expected for run in runs)
    ]
    return {"tables": tables, "ranks": ranks, "starts": starts, "differences": different}


def _run(words: list[str], limit: float) -> dict[str, Any] | None:
    """The times of a start in a new process; None if it takes too long."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.ett_fake", "--one", *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit,
            # TorchRec's choice between equal plans depends on it.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"a start failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _report(result: dict[str, Any]) -> str:
    rows = []
    for cell in result["cells"]:
        for variant, runs in cell["starts"].items():
            name = f"{cell['tables']} x {cell['ranks']}, {SHOWN[variant]}"
            if not runs:
                rows.append([name, f"over {duration(result['limit_seconds'])}", "-", "-", "-"])
                continue
            times = [shown([run[part] for run in runs]) for part in ("plan", "dmp")]
            both = _both(runs)
            share = statistics.median(run["plan"] for run in runs) / both
            stock = cell["starts"].get("torchrec")
            gain = ratio(_both(stock) / both) if stock else "-"
            rows.append([name, *times, f"{100 * share:.1f} %", gain])
    titles = ["one rank of a fake group", "plan", "DMP", "plan's share", "TorchRec / this"]
    wrong = [line for cell in result["cells"] for line in cell["differences"]]
    return f"{table(titles, rows)}\n\n" + ("\n".join(wrong) or "all plans of a cell are the same")


def _both(runs: list[dict[str, Any]]) -> float:
    return statistics.median(run["plan"] + run["dmp"] for run in runs)


if __name__ == "__main__":
    sys.exit(main())
