"""`fastplan profile`: time and memory for 100 million ids, and estimates against exact answers.

python -m bench.profile [--ids N]

The ids are four streams in Parquet files: uniform, Zipf 1.05, Zipf 1.2 whose hot rows drift, and a
mixture of repeated, hot and single ids. The command runs as a user runs it, as one process and as
two. Estimates are compared with LRU caches that are simulated and windows that are counted, on
shorter streams with more distinct ids than a table follows.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.arguments import new_parser
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.profile.table import TableProfile
from tests.profile import streams

FILE = "profile.json"
FILES = 10
ROW_GROUP = 1_000_000
EXACT_IDS = 2_000_000
CACHES = (0.001, 0.01, 0.05, 0.2, 0.6)  # of the distinct ids
WINDOWS = (1000, 10_000, 100_000, 1_000_000)
GOALS = {"seconds": 120.0, "bytes": 1 << 30, "misses": 0.02, "unique": 0.03}
SPEC = {"model": "streams", "batch_size": 4096}
RUN_TITLES = ("processes", "ids", "seconds", "CPU seconds", "ids per second", "peak memory")
ERROR_TITLES = (
    *("stream", "ids", "distinct", "followed", "largest error of misses"),
    *("largest error of distinct ids", "zipf"),
)


def main() -> int:
    parser = new_parser("bench.profile", __doc__)
    parser.add_argument("--ids", type=int, default=100_000_000, help="in all tables")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments.ids), report, _failed)


def _measure(ids: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        files = _write(Path(folder), ids)
        runs = [_run(Path(folder), files, jobs, ids) for jobs in (1, 2)]
    return {"runs": runs, "errors": [_errors(name, make) for name, make in LARGE.items()]}


# The streams of the tests with more rows.
LARGE = {
    "uniform": lambda count: streams.uniform(count, 1_000_000),
    "Zipf 1.05": lambda count: streams.skewed(count, 10_000_000),
    "Zipf 1.2, drifting": lambda count: streams.drifting(count, 5_000_000),
    "mixture": streams.mixed,
}


def _write(folder: Path, ids: int) -> list[str]:
    """Writes the streams as columns, a part of each to every file."""
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"t{i}" for i in range(len(LARGE))]
    tables = [{"name": name, "rows": "10M", "dim": 64} for name in names]
    (folder / "model.json").write_text(json.dumps({**SPEC, "tables": tables}))
    each = ids // len(LARGE)
    whole = [make(each).astype(np.int32) for make in LARGE.values()]
    files = []
    for i in range(FILES):
        part = slice(each * i // FILES, each * (i + 1) // FILES)
        columns = {name: pa.array(own[part]) for name, own in zip(names, whole, strict=True)}
        files.append(str(folder / f"{i}.parquet"))
        parquet.write_table(pa.table(columns), files[-1], row_group_size=ROW_GROUP)
    return files


def _run(folder: Path, files: list[str], jobs: int, ids: int) -> dict[str, Any]:
    """Runs the command, and asks for the memory of all its processes ten times a second."""
    import psutil

    words = ["-m", "fastplan", "profile", str(folder / "model.json"), *files]
    words += ["--jobs", str(jobs), "-o", str(folder / f"ids{jobs}.json"), "--json"]
    begin, used = time.monotonic(), os.times()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            root = psutil.Process(process.pid)
            alive = [root, *root.children(recursive=True)]
            peak = max(peak, sum(one.memory_info().rss for one in alive))
        except psutil.Error:
            pass  # it has just ended
        time.sleep(0.1)
    assert process.returncode == 0, f"fastplan profile ended with {process.returncode}"
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    seconds = time.monotonic() - begin
    return {"jobs": jobs, "ids": ids, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}


def _errors(name: str, make: Any) -> dict[str, Any]:
    ids = make(EXACT_IDS).astype(np.int64)
    profile = TableProfile()
    profile.add(ids, np.ones(len(ids), np.int64))
    found = profile.statistics()
    assert found is not None
    distinct = len(np.unique(ids))
    misses = {}
    for part in CACHES:
        rows = int(distinct * part)
        misses[rows] = found.misses.at(rows) - streams.lru_misses(ids, rows)
    random = np.random.default_rng(0)
    unique = {len(ids): found.distinct(len(ids)) / distinct - 1}
    for size in WINDOWS:
        starts = random.integers(0, len(ids) - size, max(20, 20_000_000 // size))
        exact = streams.distinct_in_windows(ids, size, starts)
        unique[size] = found.distinct(size) / exact - 1
    return {
        "stream": name,
        "ids": len(ids),
        "distinct": distinct,
        "followed": found.followed,
        "misses": misses,
        "unique": unique,
        "zipf": found.zipf,
        "zipf_error": found.zipf_error,
    }


def report(result: dict[str, Any]) -> str:
    """Both tables."""
    runs = table(list(RUN_TITLES), [run_cells(run) for run in result["runs"]])
    errors = [error_cells(error) for error in result["errors"]]
    return f"{runs}\n\n{table(list(ERROR_TITLES), errors, left=(0,))}"


def run_cells(run: dict[str, Any]) -> list[str]:
    """The row of a run, under RUN_TITLES."""
    return [
        str(run["jobs"]),
        f"{run['ids']:,}",
        f"{run['seconds']:.0f}",
        f"{run['cpu_seconds']:.0f}",
        f"{run['ids'] / run['seconds'] / 1e6:.1f} M",
        f"{run['peak_bytes'] / 2**20:.0f} MiB",
    ]


def error_cells(error: dict[str, Any]) -> list[str]:
    """The row of a stream, under ERROR_TITLES."""
    misses, unique = (max(map(abs, error[name].values())) for name in ("misses", "unique"))
    return [
        error["stream"],
        f"{error['ids']:,}",
        f"{error['distinct']:,}",
        f"{100 * error['followed']:.0f} %",
        f"{100 * misses:.2f} points",
        f"{100 * unique:.2f} %",
        "-" if error["zipf"] is None else f"{error['zipf']:.2f} ± {error['zipf_error']:.2f}",
    ]


def _failed(result: dict[str, Any]) -> bool:
    """Whether a run is too slow or too large, or the estimates of a stream are too far off."""
    holds = all(
        run["seconds"] <= GOALS["seconds"] and run["peak_bytes"] <= GOALS["bytes"]
        for run in result["runs"]
    )
    errors = [max(map(abs, error["misses"].values())) for error in result["errors"]]
    unique = [max(map(abs, error["unique"].values())) for error in result["errors"]]
    return not holds or max(errors) > GOALS["misses"] or max(unique) > GOALS["unique"]


if __name__ == "__main__":
    raise SystemExit(main())
