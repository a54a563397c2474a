"""What plans by the predicted step cost: plan() with hardware costs and with TorchRec's.

Both kinds of costs take turns in one process, with a new planner for each plan and stats=[]. Times
are the CPU time of whole plan() calls. The ratio of a size is that of the medians; its spread is
that of the ratios of neighbouring runs.
"""

import argparse
import gc
import statistics
import time
from typing import Any

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

from bench.arguments import add_grid, add_repetitions, new_parser
from bench.planning import make_case
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import Case, quiet
from bench.text import duration, ratio, table
from fastplan import EmbeddingShardingPlanner

FILE = "step_search.json"
GRID = "100x16,1000x64,1000x1024"
GOAL = 1.5
COSTS: dict[str, dict[str, Any]] = {
    "torchrec": {},
    "hardware": {"costs": "hardware", "sku": "h100"},
}
TITLES = ["tables x ranks", "TorchRec's costs", "hardware costs", "ratio", "quartiles", "n"]


def main() -> int:
    parser = new_parser("bench.step_search", __doc__)
    add_grid(parser, GRID)
    add_repetitions(parser, 15, "runs of each costs")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), report, missed)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "goal": GOAL,
        "sizes": [measure_size(*cell, arguments.repetitions) for cell in arguments.grid],
    }


def measure_size(tables: int, ranks: int, repetitions: int) -> dict[str, Any]:
    """The CPU seconds of all runs of a size, and how many proposals they placed."""
    case = make_case(tables, ranks)
    seconds: dict[str, list[float]] = {name: [] for name in COSTS}
    placements: dict[str, int] = {}
    gc.collect()
    gc.freeze()  # the model stays alive, and need not be looked at before each run
    for number in range(repetitions + 1):
        with Progress(f"{tables} x {ranks}: run {number} of {repetitions}"):
            for name, arguments in COSTS.items():
                elapsed, placements[name] = _plan(case, arguments)
                # The first run also pays for lazy imports.
                seconds[name] += [elapsed] if number else []
    gc.unfreeze()
    medians = {name: statistics.median(runs) for name, runs in seconds.items()}
    pairs = [
        ours / theirs for theirs, ours in zip(seconds["torchrec"], seconds["hardware"], strict=True)
    ]
    return {
        "tables": tables,
        "ranks": ranks,
        "n": repetitions,
        "median_seconds": medians,
        "ratio": medians["hardware"] / medians["torchrec"],
        "ratio_quartiles": statistics.quantiles(pairs, method="inclusive")[::2],
        "placements": placements,
        "seconds": seconds,
    }


def _plan(case: Case, arguments: dict[str, Any]) -> tuple[float, int]:
    planner = case.planner(EmbeddingShardingPlanner, cache=False, **arguments)
    gc.collect()
    with quiet():
        start = time.process_time()
        planner.plan(case.module, [EmbeddingBagCollectionSharder()])
        elapsed = time.process_time() - start
    run = planner.last_run
    if run.engine != "native" or (run.step is None) == bool(arguments):
        raise SystemExit(f"this is not the plan to measure: {run.engine}, {run.reason}")
    return elapsed, run.evaluated


def missed(result: dict[str, Any]) -> bool:
    """Whether a ratio is above the goal."""
    return any(size["ratio"] > result["goal"] for size in result["sizes"])


def report(result: dict[str, Any]) -> str:
    """The table, and what the goal is."""
    rows = [cells(size) for size in result["sizes"]]
    return f"{table(TITLES, rows)}\ngoal: at most {ratio(result['goal'])}"


def cells(size: dict[str, Any]) -> list[str]:
    """The row of a size, under TITLES."""
    low, high = size["ratio_quartiles"]
    return [
        f"{size['tables']} x {size['ranks']}",
        duration(size["median_seconds"]["torchrec"]),
        duration(size["median_seconds"]["hardware"]),
        ratio(size["ratio"]),
        f"{low:.2f} - {high:.2f}",
        str(size["n"]),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
