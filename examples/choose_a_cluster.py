"""Plan a model on clusters that you don't have, and choose one of them.

    python choose_a_cluster.py

The question: which cluster trains this model fast enough for the least money? The sweep plans the
model on every combination of hardware and size. It needs no GPU and no torch. The plans are kept,
so that a job on the chosen cluster starts without planning.
"""

from __future__ import annotations

import json
from pathlib import Path

import fastplan
from fastplan.sweep.file import read_sweep
from fastplan.sweep.queries import smallest_cluster
from fastplan.sweep.rows import Row
from fastplan.sweep.run import run_sweep

# `costs: hardware` plans with costs that are fitted to measured devices, and predicts the step.
MODEL = {
    "model": "ranker",
    "costs": "hardware",
    "tables": [
        {"name": "user", "rows": "1B", "dim": 128, "pooling": 5},
        {"name": "item", "rows": "200M", "dim": 128, "pooling": 20},
        {"name": "query", "rows": "80M", "dim": 128, "pooling": 10},
        {"name": "shop", "rows": "20M", "dim": 64, "pooling": 3},
        {"name": "country", "rows": 300, "dim": 32},
    ],
}
# All clusters train on 65,536 samples per step, so that their steps can be compared.
SWEEP = {
    "models": ["model.json"],
    "skus": ["a100-40", "a100-80", "h100"],
    "world_sizes": [4, 8, 16, 32],
    "batch_sizes": [65536],
    "global_batch": True,
}
# Per rank and hour. These are invented: put in yours.
PRICES = {"a100-40": 1.1, "a100-80": 1.5, "h100": 2.4}
TARGET = 2.0  # milliseconds for the embedding tables in a step


def describe(row: Row) -> str:
    """Returns a line of the table."""
    cluster = f"{row.sku:8} x {row.world_size:2}"
    price = f"{PRICES[row.sku] * row.world_size:6.2f} per hour"
    if not row.fits:
        missing = -(row.headroom_bytes or 0) / (1 << 30)
        return f"{cluster}  {price}  does not fit: every rank lacks {missing:.1f} GiB"
    note = f"  ({row.ddr_bytes >> 30} GiB in host memory)" if row.ddr_bytes else ""
    return f"{cluster}  {price}  {row.step:6.2f} ms{note}"


def main() -> None:
    Path("model.json").write_text(json.dumps(MODEL))
    Path("sweep.json").write_text(json.dumps(SWEEP))
    result = run_sweep(read_sweep("sweep.json"), "plans", executor=1)
    print(f"{len(result.rows)} clusters planned in {result.seconds:.2f} s")
    for row in result.rows:
        print(f"  {describe(row)}")

    print()
    for answer in smallest_cluster(result):
        size = f"{answer.row.world_size} ranks" if answer.row else "does not fit"
        print(f"smallest of {answer.sku}: {size}")

    fast_enough = [row for row in result.fitting if row.step <= TARGET]
    best = min(fast_enough, key=lambda row: PRICES[row.sku] * row.world_size)
    print(f"cheapest with at most {TARGET} ms: {best.sku} x {best.world_size}")

    # The job asks for the same plan, and finds it.
    found = fastplan.plan(
        "model.json",
        sku=best.sku,
        world_size=best.world_size,
        batch_size=best.batch_size,
        cache="plans",
    )
    print(f"plan of the job: cache {found.cache.status}, {found.step.ms:.2f} ms")


if __name__ == "__main__":  # the sweep may start processes, which import this file
    main()
