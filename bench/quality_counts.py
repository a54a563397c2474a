"""Checks optimized plans on random instances, and counts the results."""

import argparse
import math
import sys
from collections import Counter
from typing import Any

from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.engine.optimize import Optimize, OptimizeResult, check_bound, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import verify_plan
from fastplan.model.request import Search
from tests.exact import Exact, packing_problem, tiny_problem
from tests.problems import DEFAULT_SEARCH, random_problem

FILE = "quality_counts.json"
SHOWN = {
    "random": "random",
    "small": "small, solved exactly",
    "full": "nearly full, solved exactly",
}
MOVES = 4_000
# Sums in another order differ by less.
NEARLY = 1 + 1e-12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality_counts", description=__doc__)
    parser.add_argument("--random", type=int, default=1000, help="instances against TorchRec")
    parser.add_argument("--small", type=int, default=500, help="instances solved exactly")
    parser.add_argument("--full", type=int, default=500, help="instances that are nearly full")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _count(arguments), _report, _failed)


def _count(arguments: argparse.Namespace) -> dict[str, Any]:
    with Progress(f"{arguments.random} random instances"):
        drawn = _random(range(arguments.random))
    with Progress(f"{arguments.small} small instances"):
        small = _exact(map(tiny_problem, range(arguments.small)))
    with Progress(f"{arguments.full} nearly full instances"):
        full = _exact(map(packing_problem, range(arguments.full)))
    return {"counts": {"random": drawn, "small": small, "full": full}}


def _report(result: dict[str, Any]) -> str:
    rows = [
        [SHOWN[name], what, str(count)]
        for name, own in result["counts"].items()
        for what, count in own.items()
    ]
    return table(["instances", "", "count"], rows, left=(0, 1))


def _failed(result: dict[str, Any]) -> bool:
    return any(what.startswith("WRONG") for own in result["counts"].values() for what in own)


def _optimized(problem: Problem, search: Search, seed: int, counts: Counter[str]) -> OptimizeResult:
    """Optimizes a plan and counts failed checks."""
    settings = Optimize(time_budget=None, move_budget=MOVES, seed=seed)
    found = optimize(problem, search, settings)
    torchrec = min(found.start_ratings.values())
    counts["instances"] += 1
    counts["with uneven memory"] += len(set(problem.cluster.rank_hbm)) > 1
    counts["planned by TorchRec"] += math.isfinite(torchrec)
    counts["planned by fastplan"] += found.found
    counts["better than TorchRec's"] += found.rating < torchrec < math.inf
    if found.rating > torchrec:
        counts["WRONG: worse than TorchRec's"] += 1
    if found.found and verify_plan(problem, found.options, found.ranks, found.rating):
        counts["WRONG: not a legal plan"] += 1
    if check_bound(problem, found.certificate) != found.lower_bound:
        counts["WRONG: the certificate does not prove the bound"] += 1
    return found


def _random(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        problem, search = random_problem(seed)
        _optimized(problem, search, seed, counts)
    return counts


def _exact(problems: "map[Problem]") -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed, problem in enumerate(problems):
        found = _optimized(problem, DEFAULT_SEARCH, seed, counts)
        best = Exact(problem).best()
        counts["feasible"] += math.isfinite(best)
        counts["optimal"] += found.found and found.rating <= best * NEARLY
        if math.isfinite(best) and math.isinf(min(found.start_ratings.values())):
            counts["feasible, but not for TorchRec"] += 1
            counts["of these planned by fastplan"] += found.found
        if found.found and not found.lower_bound <= best * NEARLY <= found.rating * NEARLY**2:
            counts["WRONG: bound, optimum and rating are not in order"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
