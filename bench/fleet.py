"""A fleet of 10,000 jobs with 64 ranks each: the first read, later reads, and queries of the page.

The recordings are generated in the recorder's format (bench/fleet_jobs.py). Each command runs as a
process of its own. Seconds are those of the clock, CPU seconds those of all processes of a command,
and memory is the largest sum over them, sampled ten times a second. Other work on the machine makes
the seconds longer; CPU seconds divided by the cores are what an idle machine needs at least.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench.arguments import new_parser
from bench.fleet_jobs import Fleet, write_jobs
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.ett.fleet.compare import compare_jobs
from fastplan.ett.fleet.page import fleet_page, page_data
from fastplan.ett.fleet.select import Selection
from fastplan.ett.fleet.store import FleetStore
from fastplan.ett.fleet.summary import group_by_label, summarise

FILE = "fleet.json"
NEW = 100
SECOND = "second"
LIMITS = {"first read": 60.0, "nothing new": 2.0, f"{NEW} new jobs": 2.0}


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.fleet", __doc__)
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N", help="jobs of the fleet")
    parser.add_argument("--ranks", type=int, default=64, metavar="N", help="ranks of a job")
    parser.add_argument("--folder", type=Path, help="recordings that an earlier run has left")
    parser.add_argument("--keep", action="store_true", help="leave the recordings")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="fastplan-fleet-"))
    fleet = Fleet(ranks=arguments.ranks)
    if not any(folder.iterdir()):
        with Progress(f"{arguments.jobs:,} jobs of {arguments.ranks} ranks"):
            write_jobs(folder, 0, arguments.jobs, fleet)
    try:
        with tempfile.TemporaryDirectory(prefix="fastplan-fleet-db-") as database:
            return _read(arguments, folder, os.path.join(database, "fleet.duckdb"), fleet)
    finally:
        shutil.rmtree(folder / SECOND, ignore_errors=True)
        if not (arguments.keep or arguments.folder):
            shutil.rmtree(folder)


def _read(
    arguments: argparse.Namespace, folder: Path, database: str, fleet: Fleet
) -> dict[str, Any]:
    commands = {}
    for name in LIMITS:
        if name.endswith("new jobs"):
            write_jobs(folder / SECOND, arguments.jobs, NEW, fleet)
        with Progress(name):
            commands[name] = _timed(["ett", "fleet", str(folder), "--db", database])
    files, size = 0, 0
    for path in folder.rglob("*.jsonl"):
        files, size = files + 1, size + path.stat().st_size
    return {
        "jobs": arguments.jobs,
        "ranks": arguments.ranks,
        "files": files,
        "bytes": size,
        "database_bytes": os.path.getsize(database),
        "commands": commands,
        "queries": _queries(database, str(folder)),
    }


def _timed(words: list[str]) -> dict[str, float]:
    """Runs a command to its end, and measures it with all processes that it starts."""
    begin, before = time.monotonic(), _cpu_of_children()
    process = psutil.Popen([sys.executable, "-m", "fastplan", *words], stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            most = max(most, sum(each.memory_info().rss for each in family))
        except psutil.Error:  # one of them has just ended
            pass
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    seconds = time.monotonic() - begin
    return {"seconds": seconds, "cpu_seconds": _cpu_of_children() - before, "memory_bytes": most}


def _cpu_of_children() -> float:
    """The CPU seconds of all processes that have ended, with those that they had started."""
    used = os.times()
    return used.children_user + used.children_system


def _queries(database: str, folder: str) -> dict[str, dict[str, float]]:
    """The queries of the page, in this process."""
    store = FleetStore(database)
    jobs = store.jobs([folder])
    some = Selection(where={"job": jobs[0].job}, since=0.0)
    half = len(jobs) // 2
    queries = {
        "all jobs of the database": lambda: store.jobs([folder]),
        "summary, days and phases": lambda: summarise(jobs),
        "by a label": lambda: group_by_label(jobs, "job"),
        "a filter": lambda: some.apply(jobs),
        "data of the page": lambda: page_data(jobs, {}),
        "the page itself": lambda: fleet_page(jobs),
        "gate, half against half": lambda: compare_jobs(
            jobs[:half], jobs[half:], ["time_to_start"], allowed=0.05
        ),
    }
    found = {}
    for name, query in queries.items():
        begin, used = time.monotonic(), time.process_time()
        query()
        found[name] = {
            "seconds": time.monotonic() - begin,
            "cpu_seconds": time.process_time() - used,
        }
    return found


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A row per command and query."""
    found = []
    cores = result["cpu_count"]
    for name, took in result["commands"].items():
        found.append(
            [
                name,
                f"{took['seconds']:.1f} s",
                f"{took['cpu_seconds']:.1f} s",
                f"{took['cpu_seconds'] / cores:.1f} s",
                f"{took['memory_bytes'] / 1e6:.0f} MB",
                f"{LIMITS[name]:.0f} s",
            ]
        )
    for name, took in result["queries"].items():
        cpu = took["cpu_seconds"]
        found.append([name, f"{took['seconds']:.2f} s", f"{cpu:.2f} s", "", "", "1 s"])
    return found


TITLES = ["", "clock", "CPU", "CPU per core", "memory", "goal"]


def _report(result: dict[str, Any]) -> str:
    return (
        f"{table(TITLES, rows(result))}\n\n{result['jobs']:,} jobs of {result['ranks']} ranks: "
        f"{result['files']:,} files, {result['bytes'] / 1e9:.2f} GB; the database has "
        f"{result['database_bytes'] / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
