"""Times both planners on the same models over a grid of tables x ranks.

If TorchRec would take longer than the limit, its plan is not run. Its enumeration is then timed
alone if that takes less than a quarter of the limit, and the table says so. If both planners ran,
their plans are compared.
"""

import argparse
import multiprocessing
import sys
from typing import Any

from bench.arguments import add_grid, add_name, add_repetitions, add_torchrec_limit, new_parser
from bench.checks import derived
from bench.estimate import Estimate
from bench.identity import differences, rating_difference
from bench.machine import peak_rss_bytes, rss_bytes
from bench.models import CRITEO_ROWS, criteo, synthetic
from bench.plot import draw
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import Case, plan_once, run_fastplan, run_torchrec, run_torchrec_enumeration
from bench.text import duration, ratio, table

GRID = "26x8,100x16,100x64,1000x64,1000x256,1000x1024,10000x1024"
# MLPerf's batch for Criteo; TorchRec's default for the synthetic models, whose thousands of
# features would otherwise leave no memory for the tables.
CRITEO_BATCH = 8192
SYNTHETIC_BATCH = 512
# An enumeration alone tells less, and is waited for less long.
ENUMERATION = 0.25


def main() -> int:
    arguments = _arguments()
    file = f"{arguments.name}.json"
    return measured_or_shown(arguments, file, lambda: _measure_all(arguments), _report)


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    estimate = Estimate()
    cells = []
    for tables, ranks in arguments.grid:
        cells.append(_measure(tables, ranks, arguments, estimate))
        print(_progress_line(cells[-1]), file=sys.stderr)
    arguments.output.mkdir(parents=True, exist_ok=True)
    draw(cells, arguments.output / f"{arguments.name}.svg")
    return {
        "torchrec_limit_seconds": arguments.torchrec_limit,
        "cells": cells,
        "peak_memory": _peak_memory(*max(arguments.grid, key=lambda cell: cell[0] * cell[1])),
        "checks": derived(cells),
    }


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.planning", __doc__)
    add_grid(parser, GRID, "; 26 tables are Criteo's")
    add_torchrec_limit(parser)
    add_repetitions(parser, 7, "fastplan runs")
    add_name(parser, "planning")
    add_arguments(parser, "NAME.json, with NAME.svg,")
    return parser.parse_args()


def make_case(tables: int, ranks: int) -> Case:
    is_criteo = tables == len(CRITEO_ROWS)
    module, constraints = criteo() if is_criteo else synthetic(tables)
    batch_size = CRITEO_BATCH if is_criteo else SYNTHETIC_BATCH
    return Case(module=module, constraints=constraints, ranks=ranks, batch_size=batch_size)


def _measure(
    tables: int, ranks: int, arguments: argparse.Namespace, estimate: Estimate
) -> dict[str, Any]:
    name = f"{tables} x {ranks}"
    case = make_case(tables, ranks)
    torchrec, theirs = _torchrec(name, case, arguments.torchrec_limit, estimate)
    with Progress(f"{name}: fastplan plans"):
        ours = run_fastplan(case, arguments.repetitions)
    different = []
    if theirs is not None:
        different = rating_difference(theirs.rating, ours.rating)
        different += differences(theirs.plan, ours.plan)
    return {
        "tables": tables,
        "ranks": ranks,
        "model": "criteo" if tables == len(CRITEO_ROWS) else "synthetic",
        "batch_size": case.batch_size,
        "shards": ours.shards,
        "torchrec": torchrec,
        "fastplan": {
            "engine": ours.engine,
            "reason": ours.reason,
            "rating": ours.rating.hex(),
            "median_seconds": ours.median,
            "first_seconds": ours.first_seconds,
            "seconds": ours.seconds,
            "phases": ours.phases,
        },
        "ratio": None if theirs is None else theirs.seconds / ours.median,
        "identical": None if theirs is None else not different,
        "differences": different,
    }


def _torchrec(
    name: str, case: Case, limit: float, estimate: Estimate
) -> tuple[dict[str, Any], Any]:
    """TorchRec's figures for this cell, and its run if there was one."""
    size = len(case.constraints), case.ranks
    expected, expected_enumeration = estimate.plan(*size), estimate.enumeration(*size)
    record: dict[str, Any] = {
        "seconds": None,
        "enumerate_seconds": None,
        "expected_seconds": expected,
        "expected_enumerate_seconds": expected_enumeration,
    }
    if expected <= limit:
        with Progress(f"{name}: TorchRec plans, about {duration(expected)}"):
            run = run_torchrec(case)
        estimate.learn_plan(*size, run.seconds)
        estimate.learn_enumeration(*size, run.enumerate_seconds)
        record["seconds"] = run.seconds
        record["enumerate_seconds"] = run.enumerate_seconds
        record["proposals"] = run.proposals
        return record, run
    if expected_enumeration <= limit * ENUMERATION:
        with Progress(f"{name}: TorchRec enumerates, about {duration(expected_enumeration)}"):
            record["enumerate_seconds"] = run_torchrec_enumeration(case)
        estimate.learn_enumeration(*size, record["enumerate_seconds"])
    return record, None


def _peak_memory(tables: int, ranks: int) -> dict[str, Any]:
    """Peak memory of one fastplan run in a new process."""
    with (
        Progress(f"{tables} x {ranks}: fastplan's peak memory"),
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        before, peak = pool.apply(_memory_of_one_run, (tables, ranks))
    return {"tables": tables, "ranks": ranks, "before_bytes": before, "peak_bytes": peak}


def _memory_of_one_run(tables: int, ranks: int) -> tuple[int, int]:
    case = make_case(tables, ranks)
    before = rss_bytes()
    plan_once(case)
    return before, peak_rss_bytes()


def _progress_line(cell: dict[str, Any]) -> str:
    theirs, ours = cell["torchrec"], cell["fastplan"]
    return (
        f"{cell['tables']} x {cell['ranks']}: TorchRec {_torchrec_text(theirs)}, "
        f"fastplan {duration(ours['median_seconds'])}"
    )


def _torchrec_text(theirs: dict[str, Any]) -> str:
    if theirs["seconds"] is not None:
        return duration(theirs["seconds"])
    return f"not run (about {_long(theirs['expected_seconds'])})"


def _long(seconds: float) -> str:
    for unit, scale in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{seconds:.0f} s"


def _report(result: dict[str, Any]) -> str:
    memory = result["peak_memory"]
    parts = [
        _times(result["cells"]),
        "\n".join(_notes(result)),
        _phases(result["cells"]),
        f"peak memory of fastplan at {memory['tables']} x {memory['ranks']}: "
        f"{memory['peak_bytes'] / 1e6:,.0f} MB, of which {memory['before_bytes'] / 1e6:,.0f} MB "
        "before planning (interpreter, torch, model)",
        "\n".join(f"{check['text']}: {ratio(check['value'])}" for check in result["checks"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _times(cells: list[dict[str, Any]]) -> str:
    header = ["tables x ranks", "TorchRec", "enumerate", "fastplan", "n", "min", "max", "first"]
    header += ["ratio", "plans", "engine"]
    rows = []
    for cell in cells:
        theirs, ours = cell["torchrec"], cell["fastplan"]
        enumeration = theirs["enumerate_seconds"]
        identical = {True: "identical", False: "DIFFERENT", None: "-"}[cell["identical"]]
        rows.append(
            [
                f"{cell['tables']} x {cell['ranks']}",
                _torchrec_text(theirs),
                "not run" if enumeration is None else duration(enumeration),
                duration(ours["median_seconds"]),
                str(len(ours["seconds"])),
                duration(min(ours["seconds"])),
                duration(max(ours["seconds"])),
                duration(ours["first_seconds"]),
                "-" if cell["ratio"] is None else ratio(cell["ratio"]),
                identical,
                ours["engine"],
            ]
        )
    return table(header, rows)


def _notes(result: dict[str, Any]) -> list[str]:
    limit = duration(result["torchrec_limit_seconds"])
    lines = [
        "TorchRec and its enumerate(): n=1. fastplan: median of fresh planners, without the first."
    ]
    if any(cell["torchrec"]["seconds"] is None for cell in result["cells"]):
        lines.append(
            f"not run: expected to take over {limit} (--torchrec-limit); the time in brackets is "
            "an estimate from the cells measured, not a measurement."
        )
    for cell in result["cells"]:
        name, reason = f"{cell['tables']} x {cell['ranks']}", cell["fastplan"]["reason"]
        if reason:
            lines.append(f"{name}: engine {cell['fastplan']['engine']}: {reason}")
        lines += [f"{name}: TorchRec != fastplan: {line}" for line in cell["differences"][:20]]
    return lines


def _phases(cells: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for cell in cells for name in cell["fastplan"]["phases"]))
    rows = []
    for cell in cells:
        phases = cell["fastplan"]["phases"]
        times = [duration(phases[name]) if name in phases else "-" for name in names]
        rows.append([f"{cell['tables']} x {cell['ranks']}", *times])
    return table(["fastplan by phase", *names], rows)


if __name__ == "__main__":
    sys.exit(main())
