"""Small models and plans to measure, with no torch in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from fastplan.files.document import document_of
from fastplan.measure.prepare import layout_key
from fastplan.model.plan import RANK, Plan
from fastplan.planning.plan import plan
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, replace
from fastplan.spec.read import spec_of

KINDS = ("table_wise", "row_wise", "column_wise", "data_parallel")
_KERNELS = {kind: ["dense" if kind == "data_parallel" else "fused"] for kind in KINDS}


def model(ranks: int = 2, tables: int = 4) -> dict[str, Any]:
    """A spec as plain data: pooled tables in `sparse.ebc`."""
    return {
        "model": "small",
        "batch_size": 32,
        "modules": {"sparse.ebc": {"sharding_types": list(KINDS), "compute_kernels": _KERNELS}},
        "tables": [
            {
                "name": f"t{i}",
                "rows": 500 * (i + 1),
                "dim": 32 if i % 2 else 64,
                "pooling": [1, 5][i % 2],
                "optimizer": "rowwise_adagrad",
            }
            for i in range(tables)
        ],
        "topology": {"sku": "torchrec-cpu", "world_size": ranks, "local_world_size": ranks},
    }


def spec(ranks: int = 2, **fields: Any) -> ModelSpec:
    return spec_of(document_of({**model(ranks), **fields}, "small.json"))


def several_modules(ranks: int) -> ModelSpec:
    """Pooled, weighted and sequence tables in nested modules, of several types."""
    content = model(ranks)
    content["modules"]["weighted"] = {**content["modules"]["sparse.ebc"], "weighted": True}
    content["modules"]["sequence.ec"] = {"kind": "embedding_collection"}
    tables = content["tables"]
    for table in tables:
        table["module"] = "sparse.ebc"
    tables[0]["rows"] = 60_000
    tables += [
        {"name": "t0", "rows": 700, "dim": 32, "module": "weighted", "pooling": [2, 0.5],
         "dtype": "fp16", "optimizer": "sgd"},
        {"name": "w1", "rows": 700, "dim": 32, "module": "weighted", "pooling": 3},
        {"name": "s0", "rows": 900, "dim": 64, "module": "sequence.ec", "pooling": 4,
         "optimizer": "other"},
    ]  # fmt: skip
    return spec(**content)


def planned(given: ModelSpec, kind: str | None = None, **others: str) -> Plan:
    """The planner's plan, of one sharding type if that is given; `others` are tables apart."""
    if kind is not None:
        given = replace(
            given,
            tables=tuple(
                replace(table, sharding_types=(others.get(table.name, kind),), min_partition=16)
                for table in given.tables
            ),
        )
    return plan(lower(given)).plan()


def on_one_rank(plan: Plan, rank: int = 0) -> Plan:
    """The layout of a table-wise plan with everything on one rank."""
    tables = []
    for table in plan.layout.tables:
        shards = table.shards.copy()
        shards[:, RANK] = rank
        tables.append(table._replace(shards=shards))
    return replace(
        plan,
        layout=replace(plan.layout, tables=tuple(tables)),
        basis=None,
        fingerprint=None,
    )


def write_runs(
    folder: Any,
    plans: dict[str, Plan],
    seconds: dict[str, float],
    *,
    rounds: int = 10,
    noise: float = 0.01,
    ranks: int = 2,
    seed: int = 1,
    **about: Any,
) -> None:
    """A folder as `measure` leaves it, with steps of so many seconds and some noise."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**_header(plans, ranks), **about}))

    def drawn(base: float) -> list[float]:
        return (base * (1 + noise * random.standard_normal(5))).clip(0).tolist()

    with open(folder / "rounds.jsonl", "w") as stream:
        for number in range(rounds):
            for position, label in enumerate(plans):
                measured = [_measured(rank, seconds[label], drawn) for rank in range(ranks)]
                line = {"round": number, "plan": position, "ranks": measured}
                stream.write(json.dumps(line) + "\n")


def _header(plans: dict[str, Plan], ranks: int) -> dict[str, Any]:
    return {
        "format": "fastplan measurement",
        "version": 1,
        "model": "small",
        "batch_size": 32,
        "device": "cpu",
        "ranks": ranks,
        "scale_rows": 1,
        "plans": [
            {
                "label": label,
                "layout": layout_key(plan.layout),
                "rating": None if plan.basis is None else plan.basis.record.rating,
                "memory": [1 << 20] * ranks,
            }
            for label, plan in plans.items()
        ],
    }


def _measured(rank: int, step: float, drawn: Callable[[float], list[float]]) -> dict[str, Any]:
    """What a rank tells of a turn; a step is made of four parts."""
    return {
        "rank": rank,
        "device": "test CPU",
        "steps": drawn(step),
        "parts": {
            "input_dist": drawn(step * 0.1),
            "lookup": drawn(step * 0.2),
            "output_dist": drawn(step * 0.3),
            "backward": drawn(step * 0.4),
        },
        "peak_memory": (2 << 20) + rank,
    }
