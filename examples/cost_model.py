"""Write a cost model of your own, plan with it, and see what it changes.

    python cost_model.py

TorchRec's cost of a lookup depends on the bandwidth of the memory, not on the size of the table.
On a real device small tables stay in its cache, so that their lookups are faster. This example
says so in a function of a shard. numba compiles it, and the native search uses it.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from pathlib import Path

import fastplan
from fastplan.measure.rerate import reestimate
from fastplan.model.plan import Plan
from fastplan.spec.lower import lower
from fastplan.spec.read import on_cluster, read_spec

CACHE_BYTES = 50e6  # the device's cache
SPEEDUP = 3.0  # of lookups in it. Measure yours: this number is invented


@fastplan.shard_cost
def cached_lookups(shard, out):
    """Sets fields of `out`, which has TorchRec's cost at first. Times are in milliseconds."""
    if shard.kernel == fastplan.Kernel.FUSED:
        size = shard.rows * shard.dim * shard.element_size
        hits = min(1.0, CACHE_BYTES / size)  # share of the rows that are in the cache
        factor = 1.0 - hits + hits / SPEEDUP
        out.fwd_compute = shard.stock.fwd_compute * factor
        out.bwd_compute = shard.stock.bwd_compute * factor


def model() -> dict:
    """Returns 24 tables: every third is large, the others fit into the cache."""
    sizes = {0: "40M", 1: "200k", 2: "20k"}
    tables = [
        {"name": f"table_{i:02}", "rows": sizes[i % 3], "dim": 64, "pooling": 5 + 3 * i}
        for i in range(24)
    ]
    return {"model": "ranker", "batch_size": 4096, "tables": tables}


def sharding_types(plan: Plan) -> dict:
    return {table.name: table.sharding_type for table in plan.layout.tables}


def main() -> None:
    Path("model.json").write_text(json.dumps(model()))
    stock_spec = on_cluster(read_spec("model.json"), sku="h100", world_size=8)
    own_spec = dataclasses.replace(stock_spec, shard_cost=cached_lookups)

    stock = fastplan.plan(stock_spec)
    begin = time.perf_counter()
    own = fastplan.plan(own_spec)
    print(f"planned with the function, first compiled: {time.perf_counter() - begin:.2f} s")
    begin = time.perf_counter()
    fastplan.plan(own_spec)
    print(f"planned again: {(time.perf_counter() - begin) * 1e3:.1f} ms")

    # Ratings of different costs can't be compared. Rate TorchRec's plan by the new cost.
    rated = reestimate(stock.plan(), lower(own_spec, trust=True))
    print()
    print(f"TorchRec's plan, by TorchRec's cost:  {stock.rating:.3f} ms")
    print(f"TorchRec's plan, by the new cost:     {rated.basis.record.rating:.3f} ms")
    print(f"the new plan, by the new cost:        {own.rating:.3f} ms")

    before, after = sharding_types(stock.plan()), sharding_types(own.plan())
    changes = Counter((before[name], after[name]) for name in before)
    print()
    print("tables by their sharding in the old and in the new plan:")
    for (old, new), count in sorted(changes.items()):
        print(f"  {old:>13} -> {new:13}  {count:2}")


if __name__ == "__main__":
    main()
