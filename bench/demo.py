"""The demo: plans the Criteo model with TorchRec and with fastplan, then on the command line.

It shows that both plans are identical. Then it runs commands and shows their output: it exports the
model as a spec, plans it into a cache, takes the plan from the cache, plans for twice the ranks,
compares both plans and writes a report.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.progress import Progress
from bench.text import duration, rank_list, ratio, table

FOLDER = Path("build/demo")
SPEC, CACHE, PAGE = FOLDER / "criteo.yaml", FOLDER / "plans", FOLDER / "plans.html"
PLAN_8, PLAN_16 = FOLDER / "8-ranks.json", FOLDER / "16-ranks.json"
ON_H100 = f"plan {SPEC} --sku h100 --cache {CACHE} --world-size"
# The command, whether its whole output is shown, and its exit code: 2 means "they differ".
TOUR = (
    (f"export bench.demo_model:criteo --batch-size 8192 -o {SPEC}", True, 0),
    (f"{ON_H100} 8 -o {PLAN_8}", True, 0),
    (f"{ON_H100} 8", False, 0),
    (f"{ON_H100} 16 -o {PLAN_16}", False, 0),
    (f"compare {PLAN_8} {PLAN_16} --force --html {PAGE}", True, 2),
    (f"cache ls --cache {CACHE}", True, 0),
)
HEADLINE = 6  # lines


def main() -> int:
    arguments = _arguments()
    with Progress("loading torch and torchrec"):
        # Imported here, so that the progress line is visible during the seconds this takes.
        from bench.identity import differences, rating_difference
        from bench.models import criteo
        from bench.runs import GIB, Case, run_fastplan, run_torchrec

    module, constraints = criteo()
    case = Case(module=module, constraints=constraints, ranks=8, batch_size=8192)
    if not arguments.json:
        print(
            f"MLPerf DLRM-DCNv2: {len(constraints)} Criteo tables on {case.ranks} devices of "
            f"{case.hbm_bytes // GIB} GiB, batch {case.batch_size} per device\n"
        )
    with Progress("TorchRec plans"):
        theirs = run_torchrec(case)
    with Progress("fastplan plans"):
        ours = run_fastplan(case, arguments.repetitions)
    different = rating_difference(theirs.rating, ours.rating) + differences(theirs.plan, ours.plan)

    if arguments.json:
        print(json.dumps(_record(case, theirs, ours, different), indent=2))
    else:
        print(_plan_table(ours.plan, module))
        print()
        print(_report(theirs, ours, different))
    if different:
        return 1
    return 0 if arguments.json else _tour()


def _tour() -> int:
    """Runs the commands as a user would, and shows each before its output."""
    shutil.rmtree(FOLDER, ignore_errors=True)  # otherwise the first plan would be a hit too
    FOLDER.mkdir(parents=True)
    program = Path(sys.executable).parent / "fastplan"
    for words, whole, expected in TOUR:
        print(f"\n$ fastplan {words}", flush=True)
        ended = subprocess.run(
            [program, *shlex.split(words)], stdout=subprocess.PIPE, text=True, check=False
        )
        lines = ended.stdout.splitlines()
        print("\n".join(lines if whole else [*lines[:HEADLINE], "..."]))
        if ended.returncode != expected:
            print(f"exit code {ended.returncode}, not {expected}", file=sys.stderr)
            return 1
    print(f"\nOpen {PAGE} in a browser to look at both plans.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument(
        "--repetitions", type=int, default=11, metavar="N", help="fastplan runs (default 11)"
    )
    arguments = parser.parse_args()
    if arguments.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    return arguments


def _plan_rows(plan: Any, module: Any) -> list[dict[str, Any]]:
    rows = {config.name: config.num_embeddings for config in module.sparse.embedding_bag_configs()}
    return [
        {
            "table": name,
            "rows": rows[name],
            "sharding_type": sharding.sharding_type,
            "kernel": sharding.compute_kernel,
            "ranks": sharding.ranks,
        }
        for tables in plan.plan.values()
        for name, sharding in sorted(tables.items())
    ]


def _plan_table(plan: Any, module: Any) -> str:
    header = ["table", "rows", "sharding", "kernel", "ranks"]
    lines = [
        [
            row["table"],
            f"{row['rows']:,}",
            row["sharding_type"],
            row["kernel"],
            rank_list(row["ranks"]),
        ]
        for row in _plan_rows(plan, module)
    ]
    return table(header, lines, left=(0, 2, 3, 4))


def _report(theirs: Any, ours: Any, different: list[str]) -> str:
    low, high = ours.spread
    lines = [
        f"TorchRec  {duration(theirs.seconds)}  (n=1, {theirs.proposals} proposals)",
        f"fastplan  {duration(ours.median)}  (median of n={len(ours.seconds)}, "
        f"{duration(low)} to {duration(high)}; first call {duration(ours.first_seconds)}; "
        f"engine {ours.engine}{f', {ours.reason}' if ours.reason else ''})",
        f"ratio     {ratio(theirs.seconds / ours.median)}",
        "",
    ]
    if different:
        lines.append(f"NOT IDENTICAL, {len(different)} differences (TorchRec != fastplan):")
        lines += [f"  {line}" for line in different]
    else:
        lines.append(
            f"identical: sharding types, kernels, ranks, all {ours.shards} shards, "
            f"and the rating to the last bit ({ours.rating.hex()})"
        )
    return "\n".join(lines)


def _record(case: Any, theirs: Any, ours: Any, different: list[str]) -> dict[str, Any]:
    return {
        "tables": len(case.constraints),
        "ranks": case.ranks,
        "batch_size": case.batch_size,
        "hbm_bytes": case.hbm_bytes,
        "identical": not different,
        "differences": different,
        "rating": ours.rating.hex(),
        "torchrec": {
            "seconds": theirs.seconds,
            "enumerate_seconds": theirs.enumerate_seconds,
            "proposals": theirs.proposals,
        },
        "fastplan": {
            "engine": ours.engine,
            "reason": ours.reason,
            "median_seconds": ours.median,
            "first_seconds": ours.first_seconds,
            "seconds": ours.seconds,
            "phases": ours.phases,
        },
        "ratio": theirs.seconds / ours.median,
        "plan": _plan_rows(ours.plan, case.module),
    }


if __name__ == "__main__":
    sys.exit(main())
