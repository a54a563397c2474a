"""The share of initialisation in MLPerf's runs of DLRM-DCNv2, from their published logs.

The logs are those of https://github.com/mlcommons/training_results_v3.0 and of
https://github.com/mlcommons/training_results_v4.0, one file per run, named
ROUND-SUBMITTER-SYSTEM-dlrm_dcnv2-result_N.log. They are not part of this repository; the result
file has the figures per system.
"""

import argparse
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.arguments import new_parser
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.imports import import_file

FILE = "fleet_mlperf.json"
SOURCE = "https://github.com/mlcommons/training_results_"
_NAME = re.compile(r"(v[\d.]+)-([^-]+)-(.+)-dlrm_dcnv2-result_\d+\.log")

Cell = dict[str, Any]


def main() -> int:
    arguments = _arguments()
    if arguments.logs is None and not arguments.show:
        # `make bench` runs without them, and published logs do not change.
        print("no directory of logs is given: the existing result is shown")
        arguments.show = True
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.fleet_mlperf", __doc__)
    parser.add_argument("logs", type=Path, nargs="?", help="the directory of the logs")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    systems: dict[tuple[str, str, str], list[FleetJob]] = defaultdict(list)
    for path in sorted(arguments.logs.iterdir()):
        name = _NAME.fullmatch(path.name)
        if name:
            systems[name[1], name[2], name[3]] += import_file("mllog", path.name, path.read_bytes())
    cells = [_system(*key, jobs) for key, jobs in sorted(systems.items())]
    return {"source": f"{SOURCE}v3.0 and {SOURCE}v4.0", "systems": cells}


def _system(mlperf_round: str, vendor: str, system: str, jobs: list[FleetJob]) -> Cell:
    hosts = re.search(r"_n(\d+)_", system)
    return {
        "round": mlperf_round,
        "vendor": vendor.replace("_", " "),
        "system": system,
        "hosts": int(hosts[1]) if hosts else 1,
        "runs": len(jobs),
        "init_s": [job.time_to_start_s for job in jobs],
        "run_s": [job.train_s for job in jobs],
        "eval_s": [job.within.get("eval", 0.0) for job in jobs],
    }


def by(result: dict[str, Any], key: Callable[[Cell], str]) -> list[list[str]]:
    """Rows of runs with the same key: their number, medians, and the share of initialisation."""
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in result["systems"]:
        groups[key(cell)].append(cell)
    rows = []
    for name, cells in groups.items():
        init = [seconds for cell in cells for seconds in cell["init_s"]]
        run = [seconds for cell in cells for seconds in cell["run_s"]]
        shares = [i / (i + r) for i, r in zip(init, run, strict=True)]
        rows.append(
            [
                name,
                str(len(init)),
                f"{statistics.median(init):.1f} s",
                f"{statistics.median(run):.1f} s",
                f"{100 * sum(init) / (sum(init) + sum(run)):.1f} %",
                f"{100 * min(shares):.1f} - {100 * max(shares):.1f} %",
            ]
        )
    return rows


TITLES = ["runs", "init, median", "run, median", "share of init", "least - most"]


def size(cell: Cell) -> str:
    return f"{cell['hosts']} host{'s' if cell['hosts'] > 1 else ''}"


def _report(result: dict[str, Any]) -> str:
    keys: dict[str, Callable[[Cell], str]] = {
        "round": lambda cell: str(cell["round"]),
        "size": size,
        "vendor": lambda cell: str(cell["vendor"]),
    }
    tables = [table([name, *TITLES], by(result, key)) for name, key in keys.items()]
    return "\n\n".join(tables)


if __name__ == "__main__":
    sys.exit(main())
