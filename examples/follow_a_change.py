"""Change a model, and let its plan follow the change instead of starting from scratch.

    python follow_a_change.py

A job is about to restart with a table that has grown and a table that is new. A plan from scratch
ignores where the tables are now, so that most of them have to move. A plan that follows the old one
moves little. No GPU and no torch is needed: this works on spec files.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import fastplan
from fastplan.plans.file import write_plan

GIB = 1 << 30
CLUSTER = {"sku": "h100", "world_size": 16}


def model(grown: bool) -> str:
    """Writes a spec of 40 tables, or of the same tables after the change, and returns its path."""
    drawn = random.Random(0)
    tables = [
        {
            "name": f"table_{number:02}",
            "rows": drawn.randint(1, 60) * 1_000_000,
            "dim": drawn.choice([64, 128]),
            "pooling": drawn.randint(1, 30),
            "optimizer": "rowwise_adagrad",
        }
        for number in range(40)
    ]
    if grown:
        tables[7]["rows"] = int(tables[7]["rows"] * 1.5)
        tables.append({**tables[3], "name": "table_40"})
    spec = {
        "model": "ranker",
        "batch_size": 4096,
        "tables": tables,
        "search": {"deterministic": True},  # TorchRec orders equal options by PYTHONHASHSEED
    }
    path = Path("after.json" if grown else "before.json")
    path.write_text(json.dumps(spec))
    return str(path)


def main() -> None:
    old = fastplan.plan(model(grown=False), **CLUSTER)
    write_plan(old.plan(), "old.json")
    print(f"old plan: rating {old.rating:.3f} ms")

    # `previous` is the plan to follow. `max_moved` limits the bytes that move, as a share of all;
    # `slack` limits how far the rating may be above that of a plan from scratch.
    changed = model(grown=True)
    policy = fastplan.Replan(max_moved=0.05, slack=0.001, reference="scratch")
    new = fastplan.plan(changed, previous="old.json", replan=policy, **CLUSTER)
    write_plan(new.plan(), "followed.json")

    report = new.replan
    assert report is not None
    print(f"followed: {report.followed}")
    print(f"what changed: {report.difference}")
    print()
    print("plan          moved bytes      rating")
    for name, moved, rating in (
        ("from scratch", report.scratch_moved, report.scratch_rating),
        ("followed", report.moved, report.rating),
    ):
        print(f"{name:12}  {moved / GIB:7.2f} GiB  {rating:7.3f} ms  ({moved / report.held:.1%})")
    print()
    print("largest moves of the followed plan:")
    for move in [*report.moves][:3]:
        size = move.bytes / GIB
        print(f"  {move.table}: {size:.2f} GiB from rank {move.source} to rank {move.target}")

    # The command shows what changes, table by table. `--force` compares plans of two models.
    print("\n$ fastplan compare old.json followed.json --force", flush=True)
    compare = [sys.executable, "-m", "fastplan", "compare", "old.json", "followed.json", "--force"]
    subprocess.run(compare, check=False)  # exit code 2: the plans differ


if __name__ == "__main__":
    main()
