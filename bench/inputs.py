"""Times whole plan() calls on many kinds of input, compared with the stock input of their size.

The stock input has loose memory, the default parts and stats=[]. The rows of a size take turns in
one process. A time is the CPU time of one plan() call of a new planner: what the call reads,
such as a previous plan, is included. Previous plans and files are made anew for each run.
"""

import argparse
import contextlib
import gc
import io
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torchrec.distributed.planner.types import PlannerError

from bench.arguments import add_grid, add_repetitions, new_parser
from bench.input_kinds import COLD, FOLLOWING, KINDS, LOOSE, Input, Kind, Setting
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import quiet
from bench.text import duration, ratio, table
from fastplan import EmbeddingShardingPlanner as FastPlanner

FILE = "inputs.json"
QUICK_FILE = "inputs-quick.json"
GRID = "100x16,1000x64"
LARGE = (5000, 256)
QUICK_RUNS = 3
# A row with slow runs ends early, after this many seconds, but not before it has some runs.
ROW_SECONDS = 15.0
FEWEST_RUNS = 3
MOST_TIMES_LOOSE = 100.0
# Re-plans relative to a cold plan, and the size that the goals are for.
REPLAN_SIZE = (1000, 64)
REPLAN_GOALS = dict(zip(FOLLOWING.values(), (0.7, 1.0, 1.0, 1.0), strict=True))


def main() -> int:
    arguments = _arguments()
    file = QUICK_FILE if arguments.quick else FILE
    return measured_or_shown(arguments, file, lambda: _measure_all(arguments), report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.inputs", __doc__)
    add_grid(parser, GRID)
    add_repetitions(parser, 15, "runs of each row")
    large = "x".join(map(str, LARGE))
    parser.add_argument("--large", action="store_true", help=f"also {large}, without some rows")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"only the first size with {QUICK_RUNS} runs; writes {QUICK_FILE}",
    )
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    grid = arguments.grid[:1] if arguments.quick else arguments.grid
    runs = QUICK_RUNS if arguments.quick else arguments.repetitions
    sizes = [measure_size(tables, ranks, KINDS, runs) for tables, ranks in grid]
    if arguments.large:
        sizes.append(measure_size(*LARGE, [kind for kind in KINDS if kind.is_for_large], runs))
    return result_of(sizes)


def result_of(sizes: list[dict[str, Any]]) -> dict[str, Any]:
    """The sizes, with the checks of the goals."""
    return {"sizes": sizes, "checks": checks(sizes)}


def measure_size(tables: int, ranks: int, kinds: Any, runs: int) -> dict[str, Any]:
    """The rows of a size. The first kind must be the loose one."""
    name = f"{tables} x {ranks}"
    with TemporaryDirectory(prefix="fastplan-bench-") as folder:
        setting = Setting(tables, ranks, Path(folder))
        with Progress(f"{name}: preparing {len(kinds)} inputs"):
            rows = [Row(kind, kind.make(setting), name) for kind in kinds]
        with _models_kept_from_collection():
            with Progress(f"{name}: first run of each row"):
                for row in rows:
                    row.plan_once()
            for number in range(1, runs + 1):
                with Progress(f"{name}: run {number} of {runs}"):
                    for row in rows:
                        row.add_run()
    loose = rows[0].median
    return {"tables": tables, "ranks": ranks, "rows": [row.record(loose) for row in rows]}


@contextlib.contextmanager
def _models_kept_from_collection() -> Iterator[None]:
    """Makes collecting garbage between runs quick: the models of all rows stay alive anyway."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Row:
    """The runs of one input."""

    def __init__(self, kind: Kind, given: Input, size: str) -> None:
        self.kind, self._input, self._size = kind, given, size
        self._seconds: list[float] = []
        self._facts: dict[str, Any] = {}

    @property
    def median(self) -> float:
        return statistics.median(self._seconds)

    def add_run(self) -> None:
        """Plans once more, unless this row has spent its time."""
        if len(self._seconds) < FEWEST_RUNS or sum(self._seconds) < ROW_SECONDS:
            self._seconds.append(self.plan_once())

    def record(self, loose: float) -> dict[str, Any]:
        return {
            "name": self.kind.name,
            "note": self._input.note,
            "n": len(self._seconds),
            "median_seconds": self.median,
            "quartiles_seconds": statistics.quantiles(self._seconds, method="inclusive")[::2],
            "ratio": self.median / loose,
            **self._facts,
            "seconds": self._seconds,
        }

    def plan_once(self) -> float:
        """The CPU seconds of a plan. The first plan also pays for lazy imports."""
        given = self._input
        planner = given.case.planner(FastPlanner, **{"cache": False, **given.arguments()})
        sharders = [given.sharder()]
        gc.collect()
        with _logged() if given.logs else quiet():
            fails = False
            began = time.process_time()
            try:
                planner.plan(given.case.module, sharders)
            except PlannerError:
                fails = True
            seconds = time.process_time() - began
        self._check(planner.last_run, fails)
        return seconds

    def _check(self, run: Any, fails: bool) -> None:
        """Keeps the facts of a run, after a look at whether it did what the row is about."""
        found = {"engine": run.engine, "fails": fails, "cache": run.cache.status}
        expected = {"engine": "native", "fails": self._input.fails, "cache": self._input.cache}
        if found != expected:
            raise RuntimeError(
                f"{self._size}, {self.kind.name}: expected {expected}, found {found}; "
                f"{run.reason or 'no other reason'}"
            )
        # A search that ends with an error does not report its placements.
        self._facts = {"placements": None if fails else run.evaluated, "rating": run.rating}
        if run.replan is not None:
            self._facts["followed"] = run.replan.followed
            self._facts["moved_part"] = run.replan.moved_part
            self._facts["from_scratch"] = run.replan.scratch_rating is not None


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Logging as a program sets it up that wants to see INFO; what is logged is discarded."""
    root, text = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [logging.StreamHandler(text)]
    root.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    if not text.getvalue():
        raise RuntimeError("no statistics were logged: is logging disabled?")


def checks(sizes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The goals for each size: {text, value, goal, holds}."""
    found = []
    for size in sizes:
        name = f"{size['tables']} x {size['ranks']}"
        rows = {row["name"]: row for row in size["rows"]}
        slowest = max(size["rows"], key=lambda row: row["ratio"])
        text = f"slowest input at {name} ({slowest['name']}) relative to loose"
        found.append(_check(text, slowest["ratio"], MOST_TIMES_LOOSE))
        for kind, goal in REPLAN_GOALS.items():
            if (size["tables"], size["ranks"]) == REPLAN_SIZE and kind in rows:
                value = rows[kind]["median_seconds"] / rows[COLD]["median_seconds"]
                found.append(_check(f"{kind} at {name}, relative to cold", value, goal))
    return found


def _check(text: str, value: float, goal: float) -> dict[str, Any]:
    return {"text": text, "value": value, "goal": goal, "holds": value <= goal}


def report(result: dict[str, Any]) -> str:
    """The table, a legend and the goals."""
    sizes = result["sizes"]
    header = ["input"]
    for size in sizes:
        header += [f"{size['tables']} x {size['ranks']}", "quartiles", "n", "/ loose", "placed", ""]
    found = [{row["name"]: row for row in size["rows"]} for size in sizes]
    rows = []
    for kind in KINDS:
        if any(kind.name in each for each in found):
            cells = [cell for each in found for cell in _cells(each.get(kind.name))]
            rows.append([kind.name, *cells])
    notes = [column for column, name in enumerate(header) if not name]
    return "\n".join(
        [
            table(header, rows, left=(0, *notes)),
            "",
            "CPU time of one plan() call: medians, with quartiles in brackets.",
            f"{LOOSE}: 80 GiB of HBM, default parts, stats=[]. placed: proposals that were placed.",
            "GiB: the HBM of a rank; for the least HBM, found by bisection to 1 %.",
            "",
            *(_check_line(check) for check in result["checks"]),
        ]
    )


def _cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["-", "", "", "", "", ""]
    low, high = map(duration, row["quartiles_seconds"])
    flags = ["not followed"] if not row.get("followed", True) else []
    flags += ["OVER"] if row["ratio"] > MOST_TIMES_LOOSE else []
    return [
        duration(row["median_seconds"]),
        f"[{low}, {high}]",
        str(row["n"]),
        ratio(row["ratio"]),
        "-" if row["placements"] is None else f"{row['placements']:,}",
        " ".join([*filter(None, [row["note"]]), *flags]),
    ]


def _check_line(check: dict[str, Any]) -> str:
    verdict = "holds" if check["holds"] else "DOES NOT HOLD"
    return f"{check['text']}: {ratio(check['value'])} (at most {check['goal']:g} x: {verdict})"


if __name__ == "__main__":
    sys.exit(main())
