"""Predicted embedding steps against whole training steps of MLPerf.

python -m bench.cost_steps

The measured steps of MLPerf's DLRM and DLRM-DCNv2 (bench/measured/steps.csv) include the dense
part. They ran HugeCTR with mixed precision and its own placement, so the predicted step of the
embeddings should be below them, not equal to them. What is predicted is the plan that fastplan
optimizes for the step: 16-bit outputs and exchanges, and TorchRec's sparse-dist pipeline.
"""

import csv
from collections import defaultdict
from typing import Any

from bench.arguments import new_parser
from bench.costs_table import FOLDER
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan.engine.optimize import Optimize
from fastplan.measure.record_estimates import match_device
from fastplan.planning.specs import plan_spec
from fastplan.spec.model import ModelSpec, ModuleSpec, TableSpec
from fastplan.spec.read import on_cluster

FILE = "cost_steps.json"
# Criteo 1TB with at most 40 million rows, and the ids of a sample in each multi-hot feature.
_MOST_ROWS = 40_000_000
ROWS = (
    *(_MOST_ROWS, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, _MOST_ROWS, 3_067_956),
    *(405_282, 10, 2_209, 11_938, 155, 4, 976, 14, _MOST_ROWS, _MOST_ROWS, _MOST_ROWS),
    *(590_152, 12_973, 108, 36),
)
MULTI_HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
MODELS = {"dcnv2": MULTI_HOT, "dlrm": (1,) * len(ROWS)}
DIM = 128
TITLES = (
    *("model", "SKU", "ranks", "global batch", "n"),
    *("measured ms", "predicted ms", "of the fastest"),
)
HALF = (2.0, 2.0, 2.0, 2.0)
SETTINGS = Optimize(time_budget=None, move_budget=300_000)


def main() -> int:
    parser = new_parser("bench.cost_steps", __doc__)
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, _compare, report, lambda result: False)


def _compare() -> dict[str, Any]:
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    unknown: dict[str, int] = defaultdict(int)
    with (FOLDER / "steps.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            sku = match_device(row["gpu"]).sku
            if sku is None:
                unknown[row["gpu"]] += 1
                continue
            shape = (int(row[name]) for name in ("ranks", "gpus_per_host", "global_batch"))
            key = (row["model"], sku, *shape, row["optimizer"])
            groups[key].append(float(row["value"]))
    return {
        "steps": [_step(*key, values) for key, values in sorted(groups.items())],
        "without_a_sku": dict(unknown),
    }


def _step(
    model: str, sku: str, ranks: int, local: int, batch: int, optimizer: str, values: list[float]
) -> dict[str, Any]:
    spec = on_cluster(
        _spec(model, batch // ranks, optimizer), sku=sku, world_size=ranks, local_world_size=local
    )
    result = plan_spec(spec, optimize=SETTINGS)
    facts = {"model": model, "sku": sku, "ranks": ranks, "global_batch": batch, "n": len(values)}
    measured = {"measured_low": min(values), "measured_high": max(values)}
    if result.step is None:
        return {**facts, **measured, "predicted": None}
    phases: dict[str, float] = defaultdict(float)
    for phase in result.step.phases:
        phases[phase.name] += 0.0 if phase.hidden else phase.ms
    return {**facts, **measured, "predicted": result.step.ms, "phases": dict(phases)}


def _spec(model: str, batch: int, optimizer: str) -> ModelSpec:
    tables = tuple(
        TableSpec(
            name=f"t{i}",
            rows=rows,
            dim=DIM,
            pooling=(float(ids),),
            optimizer=optimizer,
            output_dtype="fp16",
        )
        for i, (rows, ids) in enumerate(zip(ROWS, MODELS[model], strict=True))
    )
    return ModelSpec(
        name=model,
        tables=tables,
        batch_size=batch,
        modules={"ebc": ModuleSpec(wire=HALF)},
        costs="hardware",
        pipeline="train_sparse_dist",
    )


def report(result: dict[str, Any]) -> str:
    """The table, and the records that no SKU stands for."""
    lines = [table(list(TITLES), [cells(step) for step in result["steps"]], left=(0, 1))]
    lines += [f"{n} steps on {gpu}: no SKU" for gpu, n in result["without_a_sku"].items()]
    return "\n".join(lines)


def cells(step: dict[str, Any]) -> list[str]:
    """The row of a step, under TITLES."""
    low, high, own = step["measured_low"], step["measured_high"], step["predicted"]
    return [
        step["model"],
        step["sku"],
        str(step["ranks"]),
        f"{step['global_batch']:,}",
        str(step["n"]),
        f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}",
        "does not fit" if own is None else f"{own:.2f}",
        "" if own is None else f"{own / low:.2f}",
    ]


if __name__ == "__main__":
    raise SystemExit(main())
