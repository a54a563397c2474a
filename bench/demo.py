"""Plans the Criteo model with TorchRec and with fastplan, shows that the plans are identical."""

import argparse
import json
import sys
from typing import Any

from bench.progress import Progress
from bench.text import duration, rank_list, ratio, table


def main() -> int:
    arguments = _arguments()
    with Progress("loading torch and torchrec"):
        # Late, so that the line above is seen during the seconds this takes.
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
    return 1 if different else 0


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
