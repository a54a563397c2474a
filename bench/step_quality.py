"""Plans for the step, compared with plans for the rating, on drawn models and hardware costs.

A step is the sum over its phases of the slowest rank in each. Three plans are compared by it:
TorchRec's (under its own costs and under the hardware costs; the better counts), the one optimized
for the rating, and the one optimized for the step. Also compares the times of estimate and search
with hardware costs and with TorchRec's.
"""

import argparse
import math
import random
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

from bench.arguments import at_least_one, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table, verdicts
from fastplan.engine.optimize import Objectives, Optimize, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve, verify_plan
from fastplan.engine.step import step_of
from fastplan.model.request import Cluster, Request
from tests.hardware import drawn_problem, drawn_request
from tests.problems import DEFAULT_SEARCH

FILE = "step_quality.json"
GIB = 1 << 30
SIZES = ((100, 16), (1000, 64), (1000, 1024))
ROUNDING = 1e-9
_TORCHRECS = ("torchrec, own costs", "torchrec, hardware costs")


def main() -> int:
    parser = new_parser("bench.step_quality", __doc__)
    parser.add_argument("--instances", type=at_least_one, default=200, help="default 200")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each plan (default 1)")
    parser.add_argument("--repetitions", type=at_least_one, default=5, help="of times (default 5)")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report, _failed)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rows, seed = [], 0
    while len(rows) < arguments.instances:
        with Progress(f"instance {len(rows)} of {arguments.instances}"):
            row = _compare(seed, arguments.seconds)
        seed += 1
        if row is not None:
            rows.append(row)
    times = [_times(*size, arguments.repetitions) for size in SIZES]
    return {"seconds": arguments.seconds, "rows": rows, "times": times, "checks": _checks(rows)}


def _compare(seed: int, seconds: float) -> dict[str, Any] | None:
    """The step of each plan; None if there is no plan."""
    request, problem = drawn_problem(seed)
    stock_space = estimate(replace(request, hardware=None))
    plans = {
        "torchrec, own costs": solve(Problem(stock_space, problem.cluster), DEFAULT_SEARCH),
        "torchrec, hardware costs": solve(problem, DEFAULT_SEARCH, by="rating"),
        "rating": optimize(problem, DEFAULT_SEARCH, Optimize(time_budget=seconds)),
    }
    by_step = Optimize(time_budget=seconds, objectives=Objectives(minimize="step"))
    found = optimize(problem, DEFAULT_SEARCH, by_step, also=[plans["torchrec, own costs"]])
    if not found.found:
        return None
    wrong = verify_plan(problem, found.options, found.ranks, found.rating)
    steps = {
        name: step_of(problem, plan.options, plan.ranks).ms
        for name, plan in plans.items()
        if plan.found
    }
    own = step_of(problem, found.options, found.ranks).ms
    return {
        "seed": seed,
        "tables": problem.space.tables,
        "ranks": len(problem.cluster.rank_hbm),
        "pipeline": request.hardware.pipeline,
        "steps": steps,
        "step": own,
        "bound": found.objective_bound,
        "gain": min(steps.values(), default=math.inf) / own,
        "moves": found.moves,
        "wrong": wrong,
    }


def _times(tables: int, ranks: int, repetitions: int) -> dict[str, Any]:
    """CPU time of estimate and search, with each kind of costs in turn."""
    made = drawn_request(random.Random(f"times {tables} {ranks}"), tables, ranks, 8)
    requests = {"torchrec": replace(made, hardware=None), "hardware": made}
    cluster = Cluster(
        rank_hbm=(80 * GIB,) * ranks,
        rank_ddr=(1024 * GIB,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=8,
        group_size=8,
    )
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in requests}
    for _ in range(repetitions):
        for name, request in requests.items():
            taken[name].append(_timed(request, cluster))
    medians = {
        name: [statistics.median(part) for part in zip(*own, strict=True)]
        for name, own in taken.items()
    }
    return {"tables": tables, "ranks": ranks, "n": repetitions, "ms": medians}


def _timed(request: Request, cluster: Cluster) -> tuple[float, float]:
    began = time.process_time()
    space = estimate(request)
    estimated = time.process_time()
    solve(Problem(space, cluster), DEFAULT_SEARCH)
    return (estimated - began) * 1e3, (time.process_time() - estimated) * 1e3


def _checks(rows: list[dict[str, Any]]) -> dict[str, bool]:
    def never_longer_than(*names: str) -> bool:
        least = 1 - ROUNDING
        return all(
            row["steps"].get(name, math.inf) / row["step"] >= least
            for row in rows
            for name in names
        )

    return {
        "every plan is legal": not any(row["wrong"] for row in rows),
        "no step is longer than that of TorchRec's plans": never_longer_than(*_TORCHRECS),
        "no step is longer than that of the plan for the rating": never_longer_than("rating"),
    }


def _failed(result: dict[str, Any]) -> bool:
    return not all(result["checks"].values())


def _report(result: dict[str, Any]) -> str:
    rows = result["rows"]
    cells = []
    for name in (*_TORCHRECS, "rating"):
        gains = [row["steps"][name] / row["step"] for row in rows if name in row["steps"]]
        cells.append(_gains(name, gains))
    cells.append(_gains("best of them", [r["gain"] for r in rows if math.isfinite(r["gain"])]))
    above = statistics.median(row["step"] / row["bound"] for row in rows if row["bound"])
    times = []
    for cell in result["times"]:
        stock, own = cell["ms"]["torchrec"], cell["ms"]["hardware"]
        parts = [f"{stock[i]:.1f} / {own[i]:.1f} ms" for i in range(2)]
        ratio = f"{sum(own) / sum(stock):.2f}"
        times.append([f"{cell['tables']} x {cell['ranks']}", *parts, ratio, str(cell["n"])])
    return (
        f"{table(['other plan', 'n', 'step is shorter', 'geometric mean', 'least', 'most'], cells)}"
        f"\n\n{result['seconds']:g} s for each plan on one thread. The median step is "
        f"{above:.2f} x its bound.\n\n"
        + table(["tables x ranks", "estimate", "search", "hardware / TorchRec", "n"], times)
        + "\n\n"
        + verdicts(result["checks"])
    )


def _gains(name: str, gains: list[float]) -> list[str]:
    wins = sum(gain > 1 + ROUNDING for gain in gains)
    mean = statistics.geometric_mean(gains)
    return [name, str(len(gains)), str(wins), *(f"{g:.3f}" for g in (mean, min(gains), max(gains)))]


if __name__ == "__main__":
    sys.exit(main())
