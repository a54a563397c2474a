"""Times custom costs: TorchRec's formula compiled from Python compared with the core's own, and a
changed cost compiled compared with the same change as a Python estimator in TorchRec.

The variants take turns in one process, and their plans are compared. Compiling is timed separately,
in new processes: once with nothing on disk, and then with the compiled code on disk.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import Topology

import fastplan
from bench.arguments import add_repetitions, new_parser, parse_grid
from bench.identity import differences, rating_difference
from bench.planning import make_case
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import Case, quiet
from bench.text import duration, ratio, table
from fastplan.costs.stock import stock_cost

FILE = "custom_cost.json"
SHARDERS = [EmbeddingBagCollectionSharder()]
UVM_FACTOR = 1.4
COMPILE = """
import json, time
from fastplan.costs.stock import stock_cost
start = time.process_time()
made = stock_cost.compiled()
print(json.dumps([time.process_time() - start, made.from_disk]))
"""


@fastplan.shard_cost
def slower_uvm(shard: Any, out: Any) -> None:
    if shard.kernel == fastplan.Kernel.FUSED_UVM:
        out.fwd_compute = shard.stock.fwd_compute * UVM_FACTOR


class SlowerUvm(EmbeddingPerfEstimator):
    """The same cost as a TorchRec estimator."""

    def estimate(self, sharding_options: Any, sharder_data_map: Any) -> None:
        super().estimate(sharding_options, sharder_data_map)
        for option in sharding_options:
            if option.compute_kernel == "fused_uvm":
                for shard in option.shards:
                    shard.perf.fwd_compute *= UVM_FACTOR


@fastplan.plan_objective
def largest_rank(ranks: Any, out: Any) -> None:
    out.rating = ranks.total.max()


@dataclass
class Timed:
    """One way to plan, and its times."""

    name: str
    planner: Callable[[Case], Any]
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    plan: Any = None
    rating: float = 0.0
    engine: str = "torchrec"

    def run(self, case: Case, *, warm_up: bool = False) -> None:
        with quiet():
            planner = self.planner(case)
            wall, cpu = time.perf_counter(), time.process_time()
            self.plan = planner.plan(case.module, SHARDERS)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if not warm_up:
            self.seconds.append(wall)
            self.cpu.append(cpu)
        self.rating = float(planner._perf_model.rate(planner._best_plan))
        if isinstance(planner, fastplan.EmbeddingShardingPlanner):
            self.engine = planner.last_run.engine

    def result(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "rating": self.rating,
            "median_seconds": statistics.median(self.seconds),
            "median_cpu_seconds": statistics.median(self.cpu),
            "seconds": self.seconds,
            "cpu_seconds": self.cpu,
        }


def topology(case: Case) -> Topology:
    return Topology(
        world_size=case.ranks,
        compute_device="cuda",
        hbm_cap=case.hbm_bytes,
        local_world_size=min(case.ranks_per_host, case.ranks),
    )


def ours(**functions: Any) -> Callable[[Case], Any]:
    def planner(case: Case) -> Any:
        return fastplan.EmbeddingShardingPlanner(
            topology=topology(case),
            batch_size=case.batch_size,
            constraints=case.constraints,
            stats=[],
            **functions,
        )

    return planner


def with_estimator(planner_class: type[Any]) -> Callable[[Case], Any]:
    def planner(case: Case) -> Any:
        own = topology(case)
        estimators = [
            SlowerUvm(own, case.constraints),
            EmbeddingStorageEstimator(own, case.constraints),
        ]
        enumerator = EmbeddingEnumerator(own, case.batch_size, case.constraints, estimators)
        return planner_class(
            topology=own,
            batch_size=case.batch_size,
            constraints=case.constraints,
            enumerator=enumerator,
            stats=[],
        )

    return planner


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report, _failed)


def _failed(result: dict[str, Any]) -> bool:
    return bool(result["differences"]) or not all(check["holds"] for check in result["checks"])


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    [(tables, ranks)] = arguments.size
    case = make_case(tables, ranks)
    stock = Timed("TorchRec's cost, in the core", ours())
    copy = Timed("TorchRec's cost, compiled from Python", ours(shard_cost=stock_cost))
    own = Timed("a changed cost, compiled from Python", ours(shard_cost=slower_uvm))
    objective = Timed("an objective, compiled from Python", ours(objective=largest_rank))
    mixed = Timed(
        "a changed cost, Python estimator in fastplan",
        with_estimator(fastplan.EmbeddingShardingPlanner),
    )
    theirs = Timed("a changed cost, Python estimator in TorchRec", with_estimator(TorchRecPlanner))
    fast, slow = [stock, copy, own, objective], [mixed, theirs]
    with Progress(f"{tables} x {ranks}: {arguments.repetitions} rounds of fastplan"):
        for each in fast:
            each.run(case, warm_up=True)
        for _ in range(arguments.repetitions):
            for each in fast:
                each.run(case)
    with Progress(f"{tables} x {ranks}: Python estimators"):
        for each in slow:
            each.run(case)
    with Progress("compiling in separate processes"):
        compiling = _compile(min(arguments.repetitions, 3))
    pairs = [(stock, copy), (stock, objective), (theirs, own), (theirs, mixed)]
    return {
        "tables": tables,
        "ranks": ranks,
        "runs": {each.name: each.result() for each in (*fast, *slow)},
        "compile": compiling,
        "differences": [line for pair in pairs for line in _differences(*pair)],
        "checks": _checks(stock, copy, own, theirs),
    }


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.custom_cost", __doc__)
    parser.add_argument(
        "--size",
        type=parse_grid,
        default=parse_grid("100x16"),
        metavar="CELL",
        help="tables x ranks (default 100x16)",
    )
    add_repetitions(parser, 15, "rounds")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    if len(arguments.size) != 1:
        parser.error("--size must be one cell")
    return arguments


def _compile(repetitions: int) -> dict[str, Any]:
    """CPU seconds to compile, and to load code that another process compiled."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
                command = [sys.executable, "-c", COMPILE]
                done = subprocess.run(command, env=environment, capture_output=True, check=True)
                seconds, from_disk = json.loads(done.stdout)
                found[from_disk].append(seconds)
    return {
        "compile_seconds": found[False],
        "load_seconds": found[True],
        "median_compile_seconds": statistics.median(found[False]),
        "median_load_seconds": statistics.median(found[True]),
    }


def _differences(one: Timed, other: Timed) -> list[str]:
    plans = differences(one.plan, other.plan)
    return [f"{other.name}: {line}" for line in plans + rating_difference(one.rating, other.rating)]


def _checks(stock: Timed, copy: Timed, own: Timed, theirs: Timed) -> list[dict[str, Any]]:
    """Checks CPU time, because other work on the machine hardly affects it."""
    cost = statistics.median(copy.cpu) / statistics.median(stock.cpu)
    gain = statistics.median(theirs.cpu) / statistics.median(own.cpu)
    return [
        {
            "text": "compiled relative to the core's own cost, CPU time",
            "value": cost,
            "goal": "at most 1.5",
            "holds": cost <= 1.5,
        },
        {
            "text": "a Python estimator in TorchRec relative to compiled, CPU time",
            "value": gain,
            "goal": "at least 100",
            "holds": gain >= 100,
        },
    ]


def _report(result: dict[str, Any]) -> str:
    runs = result["runs"]
    base = list(runs.values())[-1]["median_cpu_seconds"]
    rows = []
    for name, run in runs.items():
        cpu = run["median_cpu_seconds"]
        rows.append(
            [
                name,
                run["engine"],
                duration(run["median_seconds"]),
                str(len(run["seconds"])),
                duration(cpu),
                duration(min(run["cpu_seconds"])),
                duration(max(run["cpu_seconds"])),
                ratio(base / cpu),
            ]
        )
    header = ["", "engine", "time", "n", "CPU", "min", "max", "ratio"]
    compiling = result["compile"]
    lines = [
        f"{result['tables']} tables x {result['ranks']} ranks",
        table(header, rows),
        "",
        f"Compiling TorchRec's cost takes {duration(compiling['median_compile_seconds'])} of CPU "
        f"time, loading it in another process {duration(compiling['median_load_seconds'])} "
        f"(n = {len(compiling['load_seconds'])}).",
        *map(_check_line, result["checks"]),
        "All plans that must be identical are identical."
        if not result["differences"]
        else f"DIFFERENT: {'; '.join(result['differences'])}",
    ]
    return "\n".join(lines)


def _check_line(check: dict[str, Any]) -> str:
    verdict = "holds" if check["holds"] else "DOES NOT HOLD"
    return f"{check['text']}: {check['value']:.3g} ({check['goal']}: {verdict})"


if __name__ == "__main__":
    sys.exit(main())
