"""Plan quality: TorchRec's searches compared with fastplan's optimizer and its proven bound.

All plans are rated by TorchRec's own cost model. No plan is below the bound, so no planner can gain
more than the distance to it. An integer program also solves the small problems, as a check of both.
"""

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import PlannerError

from bench.arguments import new_parser
from bench.models import Constraints, criteo, synthetic
from bench.progress import Progress
from bench.quality_baselines import WEIGHTS, greedy_rating
from bench.quality_exact import solve_exactly
from bench.quality_plot import draw
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import GIB, Case, Taker, quiet
from bench.text import duration, table
from fastplan.engine.optimize import Optimize, OptimizeResult, check_bound, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import solve, verify_plan
from fastplan.model.request import Partitioner, Proposer, Search

FILE = "quality.json"
BUDGETS = "0.1,1,10"
SYNTHETIC_BATCH = 512
# Tables x ranks that an integer program is tried on, and for how long.
LARGEST_EXACT = 26 * 16
EXACT_SECONDS = 10.0

Model = Callable[[], tuple[nn.Module, Constraints]]


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A model and the cluster to plan it for."""

    name: str
    model: Model
    ranks: int
    batch_size: int = SYNTHETIC_BATCH
    hbm_gib: int = 80

    def case(self) -> Case:
        module, constraints = self.model()
        return Case(
            module=module,
            constraints=constraints,
            ranks=self.ranks,
            batch_size=self.batch_size,
            hbm_bytes=self.hbm_gib * GIB,
        )


def criteo_in_columns(size: int) -> Model:
    """Criteo with column-wise shards of `size` columns."""

    def model() -> tuple[nn.Module, Constraints]:
        module, constraints = criteo()
        return module, {name: replace(c, min_partition=size) for name, c in constraints.items()}

    return model


def random_model(tables: int, seed: int) -> Model:
    return lambda: synthetic(tables, seed)


INSTANCES = (
    Instance(name="Criteo 26 x 8", model=criteo, ranks=8, batch_size=8192),
    Instance(name="Criteo 26 x 16", model=criteo, ranks=16, batch_size=4096),
    Instance(
        name="Criteo 26 x 16, columns of 32",
        model=criteo_in_columns(32),
        ranks=16,
        batch_size=4096,
    ),
    Instance(name="Criteo 26 x 8, 20 GiB", model=criteo, ranks=8, batch_size=8192, hbm_gib=20),
    Instance(name="random 50 x 8, seed 0", model=random_model(50, 0), ranks=8),
    Instance(name="random 50 x 16, seed 0", model=random_model(50, 0), ranks=16),
    Instance(
        name="random 100 x 16, 13 GiB, seed 6", model=random_model(100, 6), ranks=16, hbm_gib=13
    ),
    # Memory is full to 99 % here.
    Instance(
        name="random 100 x 16, 13 GiB, seed 0", model=random_model(100, 0), ranks=16, hbm_gib=13
    ),
    Instance(name="random 500 x 64, seed 0", model=random_model(500, 0), ranks=64),
    Instance(name="random 1000 x 128, seed 0", model=random_model(1000, 0), ranks=128),
)


class Clock:
    """Runs the optimizer for a number of seconds of wall time or of CPU time.

    On a busy machine a second is less. For seconds of CPU time, runs take as much longer as the
    one before fell short, and are repeated while they miss by a fifth.
    """

    def __init__(self, *, cpu: bool) -> None:
        self._cpu = cpu
        self._share = 1.0

    def optimize(
        self, problem: Problem, search: Search, settings: Optimize
    ) -> tuple[OptimizeResult, float]:
        """The result, and the CPU time it took."""
        assert settings.time_budget is not None
        for _ in range(4):
            wall = settings.time_budget / self._share
            began, clock = time.process_time(), time.perf_counter()
            found = optimize(problem, search, replace(settings, time_budget=wall))
            cpu = time.process_time() - began
            if not self._cpu or found.stopped_by == "optimal":
                break
            self._share = min(1.0, max(0.05, cpu / (time.perf_counter() - clock)))
            trace = tuple((at * self._share, rating) for at, rating in found.trace)
            found = replace(found, trace=trace)
            if 0.8 < cpu / settings.time_budget < 1.2:
                break
        return found, cpu


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure_all(arguments), _report, _failed)


def _failed(result: dict[str, Any]) -> bool:
    return any(row["wrong"] for row in result["rows"])


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    clock = Clock(cpu=arguments.cpu)
    rows = []
    for instance in INSTANCES:
        if arguments.only not in instance.name:
            continue
        rows.append(_measure(instance, arguments, clock))
        print(_progress_line(rows[-1]), file=sys.stderr)
    if not rows:
        sys.exit(f"no instance has {arguments.only!r} in its name")
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(rows, arguments.output / "quality.svg")
    settings = {"threads": arguments.threads, "seed": arguments.seed, "cpu_time": arguments.cpu}
    return {**settings, "rows": rows}


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.quality", __doc__)
    parser.add_argument(
        "--budgets",
        type=lambda text: [float(part) for part in text.split(",")],
        default=BUDGETS,
        metavar="SECONDS",
        help=f"how long the optimizer searches (default {BUDGETS})",
    )
    parser.add_argument("--threads", type=int, default=1, help="optimizer threads (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="optimizer seed (default 0)")
    parser.add_argument(
        "--cpu", action="store_true", help="count seconds of CPU time, for a busy machine"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="instances that have this in their name"
    )
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(instance: Instance, arguments: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    case = instance.case()
    planner = case.planner(Taker)
    with Progress(f"{instance.name}: TorchRec's plans"), quiet():
        # Without a plan the problem is there all the same, and the optimizer may find one.
        with contextlib.suppress(PlannerError):
            planner.plan(case.module, [EmbeddingBagCollectionSharder()])
        torchrec = _torchrec_ratings(planner.problem, planner.search)
    optimized, wrong = [], []
    for seconds in arguments.budgets:
        settings = Optimize(time_budget=seconds, seed=arguments.seed, threads=arguments.threads)
        with Progress(f"{instance.name}: fastplan, {duration(seconds)}"):
            found, cpu = clock.optimize(planner.problem, planner.search, settings)
        wrong += _wrong(planner, found)
        optimized.append(_record(seconds, cpu, found))
    exact = _exact(instance, planner.problem, [entry["rating"] for entry in optimized])
    bound = max(entry["bound"] for entry in optimized)
    if exact is not None and exact["rating"] is not None and exact["rating"] < bound * (1 - 1e-6):
        wrong.append("the integer program has a plan below the bound")
    return {
        "name": instance.name,
        "tables": planner.problem.space.tables,
        "ranks": instance.ranks,
        "batch_size": instance.batch_size,
        "hbm_gib": instance.hbm_gib,
        "torchrec": torchrec,
        "greedy": {
            name: greedy_rating(planner.problem, planner.space.request.tables, weight)
            for name, weight in WEIGHTS.items()
        },
        "fastplan": optimized,
        "bound": bound,
        "exact": exact,
        "wrong": wrong,
    }


def _exact(
    instance: Instance, problem: Problem, ratings: list[float | None]
) -> dict[str, Any] | None:
    """The result of an integer program, given the best rating; None if the problem is too large."""
    if problem.space.tables * instance.ranks > LARGEST_EXACT:
        return None
    known = min((rating for rating in ratings if rating is not None), default=None)
    with Progress(f"{instance.name}: integer program"):
        return solve_exactly(problem, seconds=EXACT_SECONDS, upper=known)._asdict()


def _torchrec_ratings(problem: Problem, search: Search) -> dict[str, float | None]:
    """Ratings of TorchRec's planner with its defaults and with other partitioners and proposers."""
    programmed = (Proposer(kind="dynamic_programming"),)
    searches = {
        "default": search,
        "by perf": replace(search, partitioner=Partitioner(sort_by_perf=True)),
        "balanced": replace(search, partitioner=Partitioner(memory_balanced=True)),
        "programming": replace(search, proposers=programmed),
    }
    plans = {name: solve(problem, own) for name, own in searches.items()}
    return {name: plan.rating if plan.found else None for name, plan in plans.items()}


def _wrong(planner: Taker, found: OptimizeResult) -> list[str]:
    """Lists failed checks of an optimized plan or its bound."""
    wrong = []
    if found.found:
        complaint = verify_plan(planner.problem, found.options, found.ranks, found.rating)
        options = planner.space.chosen_options(found.options, found.ranks)
        if complaint:
            wrong.append(complaint)
        if planner._perf_model.rate(plan=options) != found.rating:
            wrong.append("TorchRec rates the plan differently")
    if check_bound(planner.problem, found.certificate) != found.lower_bound:
        wrong.append("the certificate does not prove the bound")
    return wrong


def _record(seconds: float, cpu: float, found: OptimizeResult) -> dict[str, Any]:
    return {
        "budget_seconds": seconds,
        "cpu_seconds": round(cpu, 3),
        "rating": found.rating if found.found else None,
        "bound": found.lower_bound,
        "gap": found.gap if math.isfinite(found.gap) else None,
        "stopped_by": found.stopped_by,
        "moves": found.moves,
        "restarts": found.restarts,
        "trace": found.trace,
    }


def _progress_line(row: dict[str, Any]) -> str:
    gaps = ", ".join(
        f"{_above(entry['rating'], entry['bound'])} in {duration(entry['budget_seconds'])}"
        for entry in row["fastplan"]
    )
    return f"{row['name']}: {gaps}"


def _above(rating: float | None, bound: float) -> str:
    return "no plan" if rating is None else f"+{100 * (rating / bound - 1):.2f} %"


def _rated(rating: float | None, bound: float) -> str:
    return "no plan" if rating is None else f"{rating:.4f} ({_above(rating, bound)})"


def _program(exact: dict[str, Any] | None) -> str:
    if exact is None:
        return ""
    return f"{exact['bound']:.4f}{' (best)' if exact['optimal'] else ''}"


def _report(result: dict[str, Any]) -> str:
    rows = result["rows"]
    budgets = [duration(entry["budget_seconds"]) for entry in rows[0]["fastplan"]]
    searches = list(rows[0]["torchrec"])
    header = ["tables x ranks", *searches, "greedy", *(f"fastplan {text}" for text in budgets)]
    header += ["bound", "program", *(f"gap {text}" for text in budgets)]
    cells = []
    for row in rows:
        ratings = [row["torchrec"][name] for name in searches]
        ratings.append(min((r for r in row["greedy"].values() if r is not None), default=None))
        ratings += [entry["rating"] for entry in row["fastplan"]]
        rated = [_rated(rating, row["bound"]) for rating in ratings]
        gaps = [_above(entry["rating"], entry["bound"]) for entry in row["fastplan"]]
        program = _program(row["exact"])
        cells.append([row["name"], *rated, f"{row['bound']:.4f}", program, *gaps])
    lines = [
        table(header, cells),
        "",
        "Ratings are TorchRec's; in brackets, the distance above the highest bound. `greedy`",
        f"is the best of {', '.join(WEIGHTS)}, heaviest first.",
        f"`program`: the lower bound that an integer program proves in {EXACT_SECONDS:g} s.",
        "`gap`: the gap that a run proves by itself within its time.",
    ]
    lines += [f"{row['name']}: {text}" for row in rows for text in row["wrong"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
