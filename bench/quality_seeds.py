"""How much plan quality depends on the seed: the gap proven in one second, for several seeds."""

import argparse
import contextlib
import statistics
import sys
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import PlannerError

from bench.progress import Progress
from bench.quality import INSTANCES, Clock, Instance, Taker
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import quiet
from bench.text import table, verdicts
from fastplan.engine.optimize import Optimize

FILE = "quality_seeds.json"
SECONDS = 1.0
GOAL = 0.01


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU time")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure_all(arguments), _report)


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    clock = Clock(cpu=arguments.cpu)
    rows = [_measure(instance, arguments.seeds, clock) for instance in INSTANCES]
    return {"cpu_time": arguments.cpu, "seconds": SECONDS, "rows": rows, "checks": _checks(rows)}


def _checks(rows: list[dict[str, Any]]) -> dict[str, bool]:
    return {
        f"{row['name']}: a median gap of at most {GOAL:.0%}": statistics.median(row["gaps"]) <= GOAL
        for row in rows
    }


def _report(result: dict[str, Any]) -> str:
    parts = (min, statistics.median, max)
    cells = [
        [row["name"], *(f"{100 * part(row['gaps']):.2f} %" for part in parts)]
        for row in result["rows"]
    ]
    seeds = len(result["rows"][0]["gaps"])
    clock = "CPU time" if result["cpu_time"] else "time"
    return (
        f"{table(['tables x ranks', 'least gap', 'median', 'largest'], cells)}\n\n"
        f"n = {seeds} seeds, {result['seconds']:g} s of {clock} each on one thread.\n\n"
        f"{verdicts(result['checks'])}"
    )


def _measure(instance: Instance, seeds: int, clock: Clock) -> dict[str, Any]:
    case = instance.case()
    planner = case.planner(Taker)
    with quiet(), contextlib.suppress(PlannerError):
        planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    gaps, times = [], []
    for seed in range(seeds):
        with Progress(f"{instance.name}: seed {seed}"):
            settings = Optimize(time_budget=SECONDS, seed=seed)
            found, cpu = clock.optimize(planner.problem, planner.search, settings)
        gaps.append(found.gap)
        times.append(round(cpu, 3))
    return {"name": instance.name, "gaps": gaps, "cpu_seconds": times}


if __name__ == "__main__":
    sys.exit(main())
