"""The gate on Time to Start: how many regressions of 5 % it finds, and how many false alarms.

Time to Start is drawn with a log-normal spread from job to job, and three jobs in a hundred take
1.5 to 4 times as long, as jobs do that wait for a slow disk. All draws follow from fixed seeds.
"""

import argparse
import sys
from typing import Any

import numpy as np

from bench.arguments import new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.ett.fleet.compare import LEVEL, compare_figure

FILE = "fleet_gate.json"
ALLOWED = 0.05
REGRESSION = 0.05
OUTLIERS, SLOWER = 0.03, (1.5, 4.0)
SPREADS = (0.02, 0.05, 0.10, 0.15)
JOBS = (50, 100, 200)  # on each side


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.fleet_gate", __doc__)
    parser.add_argument("--rounds", type=int, default=2000, metavar="N", help="comparisons each")
    add_arguments(parser, FILE)
    return parser.parse_args()


def draw(dice: np.random.Generator, jobs: int, spread: float, factor: float) -> Any:
    """Times to Start in seconds."""
    times = 240.0 * factor * np.exp(dice.normal(0.0, spread, jobs))
    slow = dice.random(jobs) < OUTLIERS
    times[slow] *= dice.uniform(*SLOWER, int(slow.sum()))
    return times


def false_alarms(jobs: int, spread: float, rounds: int) -> int:
    """Regressions found where there is none."""
    return _alarms(jobs, spread, rounds, 1.0)


def found(jobs: int, spread: float, rounds: int) -> int:
    """Regressions found where there is one."""
    return _alarms(jobs, spread, rounds, 1.0 + REGRESSION)


def _alarms(jobs: int, spread: float, rounds: int, factor: float) -> int:
    dice = np.random.default_rng([jobs, round(1000 * spread), round(1000 * factor)])
    count = 0
    for _ in range(rounds):
        before, after = draw(dice, jobs, spread, 1.0), draw(dice, jobs, spread, factor)
        count += compare_figure("time_to_start", before, after, allowed=ALLOWED).regressed
    return count


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    cases = []
    for spread in SPREADS:
        for jobs in JOBS:
            with Progress(f"spread {spread:.0%}, {jobs} jobs on each side"):
                cases.append(
                    {
                        "spread": spread,
                        "jobs": jobs,
                        "found": found(jobs, spread, arguments.rounds),
                        "false_alarms": false_alarms(jobs, spread, arguments.rounds),
                    }
                )
    return {"rounds": arguments.rounds, "level": LEVEL, "regression": REGRESSION, "cases": cases}


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A row per spread and number of jobs."""
    rounds = result["rounds"]
    return [
        [
            f"{case['spread']:.0%}",
            str(case["jobs"]),
            f"{100 * case['found'] / rounds:.1f} %",
            f"{100 * case['false_alarms'] / rounds:.2f} %",
        ]
        for case in result["cases"]
    ]


def _report(result: dict[str, Any]) -> str:
    titles = ["spread", "jobs on each side", "regressions of 5 % found", "false alarms"]
    return f"{table(titles, rows(result))}\n\nn = {result['rounds']:,} comparisons of each kind"


if __name__ == "__main__":
    sys.exit(main())
