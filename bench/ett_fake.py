"""Starts on many ranks, one of which is run: planning, and DMP with torch's fake process group.

No other rank exists and nothing is sent: what is timed is what rank 0 does by itself. Every start
is a process of its own, since the first plan and the first DMP of a process pay for lazy imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.ett_report import SHOWN
from bench.machine import RESULTS, describe
from bench.planning import parse_grid
from bench.progress import Progress
from bench.text import duration, ratio, table

GRID = "200x64,200x256,200x1024"


def main() -> int:
    arguments = _arguments()
    if arguments.one is not None:
        variant, tables, ranks, known = arguments.one
        print(json.dumps(_start(variant, int(tables), int(ranks), Path(known))))
        return 0
    cells = [_cell(tables, ranks, arguments) for tables, ranks in arguments.grid]
    result = {**describe(), "fake": True, "cells": cells}
    print(_report(cells))
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "ett_fake.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ett_fake",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument(
        "--grid",
        type=parse_grid,
        default=parse_grid(GRID),
        metavar="CELLS",
        help=f"tables x ranks (default {GRID})",
    )
    parser.add_argument(
        "--variants", nargs="+", choices=SHOWN, default=list(SHOWN), help="default: all"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="what a start may take; longer ones are given up (default 600)",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR")
    return parser.parse_args()


def _start(variant: str, tables: int, ranks: int, known: Path) -> dict[str, float]:
    """Seconds of planning and of DMP in this process, which has done neither before."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from bench import ett_model
    from bench.runs import quiet

    with quiet():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        module, sharders = ett_model.build(tables), ett_model.sharders()
        planner = ett_model.planner(variant, ranks, known)
        begin = time.perf_counter()
        plan = planner.plan(module, sharders)
        planned = time.perf_counter()
        DistributedModelParallel(module, plan=plan, sharders=sharders, init_data_parallel=False)
        ended = time.perf_counter()
        if variant == "fastplan":
            # For the variants that know their plan already.
            import fastplan

            ett_model.planner("cached", ranks, known).plan(ett_model.build(tables), sharders)
            fastplan.save_plan(plan, known / "plan.json")
    shards = sum(len(item.ranks) for part in plan.plan.values() for item in part.values())
    return {"plan": planned - begin, "dmp": ended - planned, "shards": shards}


def _cell(tables: int, ranks: int, arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="fastplan-ett-") as known:
        # fastplan first, whether it is asked for or not: others load the plan that it leaves.
        for variant in dict.fromkeys(["fastplan", *arguments.variants]):
            with Progress(f"{tables} x {ranks}, fake: {SHOWN[variant]}"):
                found[variant] = _run(variant, tables, ranks, known, arguments.limit)
    return {"tables": tables, "ranks": ranks, "starts": found}


def _run(
    variant: str, tables: int, ranks: int, known: str, limit: float
) -> dict[str, float] | None:
    words = ["-W", "ignore", "-m", "bench.ett_fake", "--one", variant, str(tables), str(ranks)]
    try:
        done = subprocess.run(
            [sys.executable, *words, known], capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        raise SystemExit(f"a start failed:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _report(cells: list[dict[str, Any]]) -> str:
    rows = []
    for cell in cells:
        stock = cell["starts"].get("torchrec")
        for variant, start in cell["starts"].items():
            name = f"{cell['tables']} x {cell['ranks']}, {SHOWN[variant]}"
            if start is None:
                rows.append([name, "given up", "-", "-", "-"])
                continue
            both = start["plan"] + start["dmp"]
            gain = ratio((stock["plan"] + stock["dmp"]) / both) if stock else "-"
            share = f"{100 * start['plan'] / both:.1f} %"
            times = [duration(start["plan"]), duration(start["dmp"])]
            rows.append([name, *times, share, gain])
    titles = ["one rank of a fake group", "plan", "DMP", "plan's share", "stock / this"]
    return table(titles, rows)


if __name__ == "__main__":
    sys.exit(main())
