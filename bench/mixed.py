"""Times planners with the custom parts of frameworks above TorchRec, by both planners.

Both planners get the same parts (bench/frameworks.py) in one process, and their plans are compared.
The second framework searches in Python itself; the time of its own methods is measured in both
planners, and a second ratio leaves it out.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.proposers import UniformProposer
from torchrec.distributed.planner.storage_reservations import HeuristicalStorageReservation
from torchrec.distributed.planner.types import Topology

from bench.arguments import add_repetitions, at_least_one, new_parser, parse_grid
from bench.frameworks import (
    DynamicTables,
    ListingEnumerator,
    StandInEnumerator,
    TwoMemoriesProposer,
    dynamic_planner,
)
from bench.identity import differences, rating_difference
from bench.planning import make_case
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import GIB, Case, quiet
from bench.text import duration, ratio, table, verdicts
from fastplan import EmbeddingShardingPlanner as FastPlanner

FILE = "mixed.json"
GOAL = 20
HBM, DDR = 320 * GIB, 512 * GIB


@dataclass
class OwnTime:
    """CPU seconds in the methods of custom parts, without what they call with sign -1."""

    seconds: float = 0.0

    def count(self, part: Any, *names: str, sign: int = 1) -> None:
        for name in names:
            setattr(part, name, self._timed(getattr(part, name), sign))

    def _timed(self, method: Callable[..., Any], sign: int) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += sign * (time.process_time() - start)

        return timed


Setup = Callable[[type[Any], Case, OwnTime], Any]


def dynamic_tables(planner_class: type[Any], case: Case, own: OwnTime) -> Any:
    """An enumerator that extends TorchRec's, and a planner that edits the plan."""
    topology, dynamic = _topology(case), DynamicTables.of(len(case.constraints))
    enumerator = StandInEnumerator(dynamic, topology, case.batch_size, case.constraints)
    return dynamic_planner(
        planner_class,
        dynamic,
        topology=topology,
        batch_size=case.batch_size,
        constraints=case.constraints,
        enumerator=enumerator,
        stats=[],
    )


def two_memories(planner_class: type[Any], case: Case, own: OwnTime) -> Any:
    """An enumerator, a storage estimator and a proposer that are the framework's own."""
    topology, dynamic = _topology(case), DynamicTables.of(len(case.constraints))
    enumerator = ListingEnumerator(dynamic, topology, case.batch_size, case.constraints)
    proposer = TwoMemoriesProposer()
    own.count(enumerator, "enumerate")
    own.count(enumerator, "populate_estimates", sign=-1)
    own.count(enumerator._estimators[-1], "estimate")
    own.count(proposer, "load", "propose", "feedback")
    return planner_class(
        topology=topology,
        batch_size=case.batch_size,
        constraints=case.constraints,
        enumerator=enumerator,
        proposer=[proposer, UniformProposer()],
        storage_reservation=HeuristicalStorageReservation(percentage=0.15),
        stats=[],
    )


SETUPS: dict[str, Setup] = {
    "tables that grow: enumerator extended, plan edited": dynamic_tables,
    "HBM x DDR: own enumerator, storage estimator and proposer": two_memories,
}


def _topology(case: Case) -> Topology:
    return Topology(
        world_size=case.ranks,
        compute_device="cuda",
        hbm_cap=HBM,
        ddr_cap=DDR,
        local_world_size=min(case.ranks_per_host, case.ranks),
    )


@dataclass
class Runs:
    """The runs of one planner with one framework's parts."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    own_cpu_seconds: list[float] = field(default_factory=list)
    plan: Any = None
    rating: float = 0.0
    proposals: int = 0
    engine: str = "torchrec"

    def run(self, setup: Setup, planner_class: type[Any], case: Case) -> None:
        own = OwnTime()
        with quiet():
            planner = setup(planner_class, case, own)
            wall, cpu = time.perf_counter(), time.process_time()
            self.plan = planner.plan(case.module, [EmbeddingBagCollectionSharder()])
            self.seconds.append(time.perf_counter() - wall)
            self.cpu_seconds.append(time.process_time() - cpu)
        self.own_cpu_seconds.append(own.seconds)
        self.rating = float(planner._perf_model.rate(planner._best_plan))
        self.proposals = planner._num_proposals
        if planner_class is FastPlanner:
            self.engine = planner.last_run.engine

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_seconds)

    @property
    def own(self) -> float:
        return statistics.median(self.own_cpu_seconds)

    def result(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "rating": self.rating,
            "proposals": self.proposals,
            "median_seconds": statistics.median(self.seconds),
            "median_cpu_seconds": self.cpu,
            "median_own_cpu_seconds": self.own,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "own_cpu_seconds": self.own_cpu_seconds,
        }


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.mixed", __doc__)
    parser.add_argument(
        "--size",
        type=parse_grid,
        default=parse_grid("240x8"),
        metavar="CELL",
        help="tables x ranks (default 240x8)",
    )
    add_repetitions(parser, 5, "fastplan runs")
    parser.add_argument(
        "--torchrec-repetitions",
        type=at_least_one,
        default=1,
        metavar="N",
        help="runs of TorchRec's planner (default 1)",
    )
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    if len(arguments.size) != 1:
        parser.error("--size must be one cell")
    return arguments


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    [(tables, ranks)] = arguments.size
    case = make_case(tables, ranks)
    cells = []
    for name, setup in SETUPS.items():
        ours, theirs = Runs(), Runs()
        with Progress(f"{tables} x {ranks}, {name}: fastplan"):
            Runs().run(setup, FastPlanner, case)  # lazy imports
            for _ in range(arguments.repetitions):
                ours.run(setup, FastPlanner, case)
        with Progress(f"{tables} x {ranks}, {name}: TorchRec"):
            for _ in range(arguments.torchrec_repetitions):
                theirs.run(setup, TorchRecPlanner, case)
        cells.append(
            {
                "name": name,
                "tables": tables,
                "ranks": ranks,
                "torchrec": theirs.result(),
                "fastplan": ours.result(),
                "ratio": theirs.cpu / ours.cpu,
                "ratio_without_own": (theirs.cpu - theirs.own) / (ours.cpu - ours.own),
                "differences": differences(theirs.plan, ours.plan)
                + rating_difference(theirs.rating, ours.rating),
            }
        )
    checks = {f"{cell['name']}: at least {GOAL} x": cell["ratio"] >= GOAL for cell in cells}
    return {"cells": cells, "checks": checks}


def _report(result: dict[str, Any]) -> str:
    rows = []
    for cell in result["cells"]:
        for side in ("torchrec", "fastplan"):
            run = cell[side]
            is_ours = side == "fastplan"
            has_own = bool(run["median_own_cpu_seconds"])
            rows.append(
                [
                    f"{cell['name']}, {cell['tables']} x {cell['ranks']}" if not is_ours else "",
                    side,
                    duration(run["median_seconds"]),
                    duration(run["median_cpu_seconds"]),
                    str(len(run["cpu_seconds"])),
                    duration(min(run["cpu_seconds"])),
                    duration(max(run["cpu_seconds"])),
                    duration(run["median_own_cpu_seconds"]) if has_own else "",
                    ratio(cell["ratio"]) if is_ours else "",
                    ratio(cell["ratio_without_own"]) if is_ours and has_own else "",
                ]
            )
    header = ["parts", "planner", "wall", "CPU", "n", "min", "max", "own CPU", "ratio"]
    text = table([*header, "without own"], rows, left=(0, 1))
    found = [line for cell in result["cells"] for line in cell["differences"]]
    same = "\n".join(found) or "Plans and ratings are identical."
    return f"{text}\n\n{verdicts(result['checks'])}\n{same}"


if __name__ == "__main__":
    raise SystemExit(main())
