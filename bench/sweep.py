"""Times a sweep of 200 cells, and TorchRec's planner on a single plan of 100 tables, 16 ranks.

The sweep is `fastplan precompute` as a user runs it, with 2 processes. The time includes start-up,
reading the specs, planning, filling a cache and printing. A second run has all plans in the cache.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.arguments import add_repetitions, new_parser
from bench.identity import rating_difference
from bench.planning import make_case
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.runs import GIB, Case, run_torchrec
from bench.text import duration, ratio, table

TABLES = (26, 50, 100, 300, 1000)
RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
# The devices that TorchRec plans for here, and others.
OURS = "bench"
SKUS = (f"{OURS}.json:{OURS}", "a100-80", "h100", "h200", "b200")
ONE_PLAN = (100, 16)
JOBS = 2
FILE = "sweep.json"


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure_all(arguments), _report, _failed)


def _failed(result: dict[str, Any]) -> bool:
    return bool(result["differences"]) or not all(check["holds"] for check in result["checks"])


def _measure_all(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        sweep = _write_sweep(Path(folder))
        colds, hits, rows = _measure(sweep, arguments.repetitions)
    tables, ranks = ONE_PLAN
    case = make_case(*ONE_PLAN)
    with Progress(f"{tables} x {ranks}: TorchRec plans"):
        start = time.process_time()
        theirs = run_torchrec(case)
        their_cpu = time.process_time() - start
    [same] = [row for row in rows if _is_the_one_plan(row)]
    result: dict[str, Any] = {
        "cells": len(rows),
        "tables": TABLES,
        "ranks": RANKS,
        "skus": [OURS, *SKUS[1:]],
        "processes": JOBS,
        "fit": sum(row["fits"] for row in rows),
        "sweep": _times(colds),
        "sweep_from_cache": _times(hits),
        "torchrec": {
            "tables": tables,
            "ranks": ranks,
            "seconds": theirs.seconds,
            "cpu_seconds": their_cpu,
        },
        "cell_seconds": [row["seconds"] for row in rows],
        "differences": rating_difference(theirs.rating, same["rating"]),
    }
    result["checks"] = _checks(result)
    return result


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.sweep", __doc__)
    add_repetitions(parser, 3, "runs of the sweep")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _write_sweep(folder: Path) -> Path:
    """The sweep file, its models and its SKU."""
    for tables in TABLES:
        spec = json.dumps(_spec(f"m{tables}", make_case(tables, RANKS[0])))
        (folder / f"m{tables}.json").write_text(spec)
    sku = {"like": "torchrec", "hbm": 80 * GIB, "ranks_per_host": 8}
    (folder / f"{OURS}.json").write_text(json.dumps({"skus": {OURS: sku}}))
    sweep = {
        "models": [f"m{tables}.json" for tables in TABLES],
        "skus": SKUS,
        "world_sizes": RANKS,
    }
    file = folder / "sweep.json"
    file.write_text(json.dumps(sweep))
    return file


def _spec(name: str, case: Case) -> dict[str, Any]:
    tables = [
        {
            "name": config.name,
            "rows": config.num_embeddings,
            "dim": config.embedding_dim,
            "pooling": case.constraints[config.name].pooling_factors,
        }
        for config in case.module.sparse.embedding_bag_configs()
    ]
    return {"model": name, "batch_size": case.batch_size, "tables": tables}


def _measure(
    sweep: Path, repetitions: int
) -> tuple[list[tuple[float, float]], list[tuple[float, float]], list[dict[str, Any]]]:
    """(wall, CPU) seconds of cold and of warm runs, and the rows."""
    colds, hits = [], []
    for i in range(repetitions):
        cache = sweep.parent / f"plans{i}"
        with Progress(f"sweep {i + 1} of {repetitions}"):
            cold, rows = _run(sweep, cache)
            hit, again = _run(sweep, cache)
        wrong = [row for row in rows if row["fits"] is None]
        missed = [row for row in again if row["fits"] and row["cache"] != "hit"]
        if wrong or missed:
            raise RuntimeError(f"a cell failed, or was not cached: {(wrong + missed)[0]}")
        colds.append(cold)
        hits.append(hit)
    return colds, hits, rows


def _run(sweep: Path, cache: Path) -> tuple[tuple[float, float], list[dict[str, Any]]]:
    command = [sys.executable, "-m", "fastplan", "precompute", str(sweep), "--json"]
    command += ["--cache", str(cache), "--jobs", str(JOBS)]
    cpu, start = _children_cpu(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=True, env=os.environ)
    seconds = time.perf_counter() - start
    return (seconds, _children_cpu() - cpu), json.loads(done.stdout)["rows"]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_the_one_plan(row: dict[str, Any]) -> bool:
    tables, ranks = ONE_PLAN
    return (row["model"], row["sku"], row["world_size"]) == (f"m{tables}", OURS, ranks)


def _times(runs: list[tuple[float, float]]) -> dict[str, Any]:
    seconds, cpu = zip(*runs, strict=True)
    return {
        "median_seconds": statistics.median(seconds),
        "median_cpu_seconds": statistics.median(cpu),
        "seconds": seconds,
    }


def _checks(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Checks wall time, and CPU time, which other work on the machine hardly affects."""
    tables, ranks = ONE_PLAN
    ours, theirs = result["sweep"], result["torchrec"]
    text = f"a sweep of {result['cells']} cells relative to TorchRec's {tables} x {ranks}"
    values = {
        f"{text}, time": ours["median_seconds"] / theirs["seconds"],
        f"{text}, CPU time of all processes": ours["median_cpu_seconds"] / theirs["cpu_seconds"],
    }
    return [
        {"text": name, "value": value, "goal": 1, "holds": value < 1}
        for name, value in values.items()
    ]


def _report(result: dict[str, Any]) -> str:
    tables, ranks = ONE_PLAN
    theirs = result["torchrec"]["seconds"]
    cpu = duration(result["torchrec"]["cpu_seconds"])
    name = f"TorchRec, one plan, {tables} x {ranks}"
    rows = [[name, duration(theirs), "1", "-", "-", cpu, "-", "-"]]
    for name, key in (("into an empty cache", "sweep"), ("all cached", "sweep_from_cache")):
        taken = result[key]
        median = taken["median_seconds"]
        rows.append(
            [
                f"fastplan, {result['cells']} cells, {name}",
                duration(median),
                str(len(taken["seconds"])),
                duration(min(taken["seconds"])),
                duration(max(taken["seconds"])),
                duration(taken["median_cpu_seconds"]),
                duration(median / result["cells"]),
                ratio(theirs / median),
            ]
        )
    header = ["", "median", "n", "min", "max", "CPU", "per cell", "ratio"]
    same = result["differences"]
    lines = [
        table(header, rows),
        "",
        f"{TABLES[0]} to {TABLES[-1]} tables, {RANKS[0]} to {RANKS[-1]} ranks, "
        f"{len(SKUS)} SKUs, {JOBS} processes; {result['fit']} cells fit.",
        *map(_check_line, result["checks"]),
        "The rating of the plan that both planners made is "
        + ("identical." if not same else f"DIFFERENT: {'; '.join(same)}"),
    ]
    return "\n".join(lines)


def _check_line(check: dict[str, Any]) -> str:
    verdict = "holds" if check["holds"] else "DOES NOT HOLD"
    return f"{check['text']}: {check['value']:.3f} (below {check['goal']}: {verdict})"


if __name__ == "__main__":
    sys.exit(main())
