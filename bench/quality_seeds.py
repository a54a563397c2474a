"""How much of a plan's quality is luck: the gap proven in one second, over several seeds."""

import argparse
import contextlib
import json
import statistics
import sys
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import PlannerError

from bench.machine import describe
from bench.progress import Progress
from bench.quality import INSTANCES, RESULTS, Clock, Instance, Taker
from bench.runs import quiet
from bench.text import table
from fastplan.core.optimize import OptimizeSettings

SECONDS = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many (default 5)")
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU time")
    arguments = parser.parse_args()
    clock = Clock(cpu=arguments.cpu)
    rows = [_measure(instance, arguments.seeds, clock) for instance in INSTANCES]
    parts = (min, statistics.median, max)
    cells = [[row["name"], *(f"{100 * part(row['gaps']):.2f} %" for part in parts)] for row in rows]
    print(table(["tables x ranks", "least gap", "median", "largest"], cells))
    print(f"\nn = {arguments.seeds} seeds, {SECONDS:g} s each on one thread.")
    result = {**describe(), "cpu_time": arguments.cpu, "seconds": SECONDS, "rows": rows}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "quality_seeds.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _measure(instance: Instance, seeds: int, clock: Clock) -> dict[str, Any]:
    case = instance.case()
    planner = case.planner(Taker)
    with quiet(), contextlib.suppress(PlannerError):
        planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    gaps, times = [], []
    for seed in range(seeds):
        with Progress(f"{instance.name}: seed {seed}"):
            settings = OptimizeSettings(time_budget=SECONDS, seed=seed)
            found, cpu = clock.optimize(planner.problem, planner.search, settings)
        gaps.append(found.gap)
        times.append(round(cpu, 3))
    return {"name": instance.name, "gaps": gaps, "cpu_seconds": times}


if __name__ == "__main__":
    sys.exit(main())
