"""Makes a run's folder from a model and plans: everything is checked before a process starts."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.folder import FAILURES, MODEL, ROUNDS, RUN, plan_file
from fastplan.measure.inputs import is_weighted, module_inputs
from fastplan.measure.rerate import basis_of
from fastplan.measure.scaling import Room, scaled_layout, scaled_spec, smallest_factor
from fastplan.measure.settings import Group, MeasureError, Settings
from fastplan.model.plan import Layout, Plan
from fastplan.model.references import BadReference, find, is_reference
from fastplan.plans.file import write_plan
from fastplan.report.estimates import EstimateUnavailable, estimates
from fastplan.spec.model import ModelSpec, ModuleSpec
from fastplan.spec.stock import KINDS
from fastplan.spec.write import write_spec

FORMAT = "fastplan measurement"
VERSION = 1

_KERNELS = {
    "cpu": ("dense", "fused"),
    "cuda": ("dense", "fused", "fused_uvm", "fused_uvm_caching"),
}
_BY_HOST = ("table_row_wise", "table_column_wise", "grid_shard")
_BUILT = ("embedding_bag_collection", "embedding_collection")
_FED = (
    *_BUILT,
    "fused_embedding_bag_collection",
    "fused_embedding_collection",
    "feature_processed_embedding_bag_collection",
    "managed_collision_embedding_bag_collection",
    "managed_collision_embedding_collection",
)
_DTYPES = ("fp32", "fp16", "bf16")
_PACKAGES = ("fastplan", "torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu")


class Subject(NamedTuple):
    """What is to be measured."""

    spec: ModelSpec
    target: str | None  # package.module:function of a real model
    plans: tuple[Plan, ...]
    labels: tuple[str, ...]  # distinct


def prepare(
    folder: Path,
    subject: Subject,
    group: Group,
    settings: Settings,
    *,
    scale: int | None,
    room: Room,
) -> int:
    """Fills the folder and returns the factor that rows are scaled down by.

    `scale` None takes the smallest factor that fits. Raises MeasureError for what can't be
    measured, and for a folder that has a measurement already; one in which nothing could be
    measured is used again.
    """
    _check_dataset(settings.dataset)
    spec = subject.spec
    _check_model(spec, subject.target, group.device, drawn=settings.dataset is None)
    for label, plan in zip(subject.labels, subject.plans, strict=True):
        _check_plan(label, plan, spec, group)
    factor = _factor(subject, group, scale, room)
    if factor > 1 and subject.target is not None:
        raise MeasureError(
            "the tables of a real model can't be scaled down: write it as a spec with "
            "`fastplan export`, and measure that"
        )
    scaled = scaled_spec(spec, factor)
    layouts = [_layout(plan, scaled, group) for plan in subject.plans]
    for label, layout in zip(subject.labels, layouts, strict=True):
        if shortage := room.shortage(layout, scaled, group):
            raise MeasureError(
                f"{label}: {shortage}; measure with fewer rows, as --scale-rows auto chooses them"
            )
    _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plan_file(folder, 0).parent.mkdir(exist_ok=True)
    write_spec(scaled, folder / MODEL)
    for number, layout in enumerate(layouts):
        write_plan(Plan(name=spec.name, layout=layout), plan_file(folder, number))
    told = _told(subject, group, settings, factor, scaled, layouts)
    (folder / ROUNDS).touch()
    (folder / RUN).write_text(json.dumps(told, indent=2) + "\n")
    return factor


def _clear(folder: Path) -> None:
    """Takes a failed attempt out of the folder. Raises MeasureError for any other measurement,
    which may be one that is still running."""
    if not (folder / RUN).exists():
        return
    rounds, failures = folder / ROUNDS, folder / FAILURES
    if not failures.exists() or (rounds.exists() and rounds.stat().st_size):
        raise MeasureError(f"{folder} has a measurement already: name another folder")
    failures.unlink()


def _check_dataset(name: str | None) -> None:
    """Ranks could only die of a function that is not there."""
    if name is None:
        return
    if not is_reference(name):
        raise MeasureError(f"the dataset must be package.module:function, not {name!r}")
    try:
        found = find(name)
    except BadReference as error:
        raise MeasureError(f"the dataset {name}: {error}") from error
    if not callable(found):
        raise MeasureError(f"the dataset {name} is a {type(found).__name__}, and no function")


def layout_key(layout: Layout) -> str:
    """Tells layouts apart, whatever their files are called."""
    tables = sorted(
        [
            table.path,
            table.name,
            table.sharding_type,
            table.kernel,
            None if table.sharding_type == "data_parallel" else table.shards.tolist(),
        ]
        for table in layout.tables
    )
    return hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:32]


def _check_model(spec: ModelSpec, target: str | None, device: str, *, drawn: bool) -> None:
    if drawn:
        module_inputs(spec)
    kinds = _BUILT if target is None else _FED
    for path in dict.fromkeys(table.module for table in spec.tables):
        module = spec.modules.get(path) or ModuleSpec()
        if module.kind not in kinds:
            way_out = "; name the real model as package.module:function" if target is None else ""
            raise MeasureError(f"module {path}: a {module.kind} can't be measured{way_out}")
        is_weighted(spec, path)
    if target is not None:
        return
    for table in spec.tables:
        if table.dtype not in _DTYPES:
            raise MeasureError(
                f"table {table.name}: {table.dtype} can't be trained; {', '.join(_DTYPES)} can"
            )
        if table.optimizer == "adam" and device == "cpu":
            raise MeasureError(
                f"table {table.name}: FBGEMM has no Adam on CPUs; rowwise_adagrad, sgd and other "
                "(Adagrad) can be measured"
            )


def _check_plan(label: str, plan: Plan, spec: ModelSpec, group: Group) -> None:
    if plan.ranks > group.ranks or (plan.basis is not None and plan.ranks != group.ranks):
        raise MeasureError(
            f"{label} is a plan for {plan.ranks} ranks, and there are {group.ranks}: change "
            "--nproc, or plan for them"
        )
    tables = {(table.module, table.name): table for table in spec.tables}
    planned = {(table.path, table.name) for table in plan.layout.tables}
    for what, found in (("the model", tables.keys() - planned), ("plan", planned - tables.keys())):
        if found:
            path, name = min(found)
            other = "not in the plan" if what == "the model" else "not in the model"
            raise MeasureError(f"{label}: table {name} of module {path or 'root'} is {other}")
    per_host = plan.layout.ranks_per_host
    for table in plan.layout.tables:
        shape = tables[table.path, table.name].rows, tables[table.path, table.name].dim
        if table.shape not in (None, shape):
            raise MeasureError(
                f"{label}: table {table.name} is {table.shape} there, and {shape} in the model"
            )
        if table.kernel not in _KERNELS[group.device]:
            raise MeasureError(
                f"{label}: table {table.name} has kernel {table.kernel}, which can't be measured "
                f"on {group.device}; {', '.join(_KERNELS[group.device])} can"
            )
        kind = (spec.modules.get(table.path) or ModuleSpec()).kind
        if group.device == "cpu" and table.kernel == "dense" and not KINDS[kind].pooled:
            raise MeasureError(
                f"{label}: table {table.name} is {table.sharding_type} and not pooled, which "
                "FBGEMM can't look up on CPUs"
            )
        if table.sharding_type in _BY_HOST and per_host not in (None, group.ranks_per_host):
            raise MeasureError(
                f"{label}: table {table.name} is {table.sharding_type} on hosts of {per_host} "
                f"ranks, and here hosts have {group.ranks_per_host}"
            )


def _factor(subject: Subject, group: Group, scale: int | None, room: Room) -> int:
    if scale is not None:
        return scale
    layouts = [plan.layout for plan in subject.plans]
    return smallest_factor(layouts, subject.spec, group, room)


def _layout(plan: Plan, scaled: ModelSpec, group: Group) -> Layout:
    """The plan on the devices at hand, for tables of the scaled size."""
    layout = scaled_layout(plan.layout, scaled, group.ranks)
    return replace(
        layout,
        device=group.device,
        ranks_per_host=group.ranks_per_host,
        tables=tuple(
            table._replace(
                settings={
                    name: value
                    for name, value in table.settings.items()
                    if name not in ("shards", "ranks")  # placements on other devices
                }
            )
            for table in layout.tables
        ),
    )


def _told(
    subject: Subject,
    group: Group,
    settings: Settings,
    factor: int,
    scaled: ModelSpec,
    layouts: Sequence[Layout],
) -> dict[str, Any]:
    plans = zip(subject.labels, subject.plans, layouts, strict=True)
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": subject.spec.name,
        "source": subject.target or subject.spec.source,
        "tables": len(subject.spec.tables),
        "batch_size": subject.spec.batch_size,
        "device": group.device,
        "ranks": group.ranks,
        "ranks_per_host": group.ranks_per_host,
        "threads": group.threads,
        "scale_rows": factor,
        "settings": asdict(settings),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "plans": [
            {
                "label": label,
                "layout": layout_key(plan.layout),
                "rating": None if plan.basis is None else plan.basis.record.rating,
                "memory": _memory(plan, scaled, layout, group.device),
            }
            for label, plan, layout in plans
        ],
    }


def _memory(plan: Plan, scaled: ModelSpec, layout: Layout, device: str) -> list[int] | None:
    """The planner's estimate of what the devices hold, by rank, for tables as measured."""
    if plan.basis is None:
        return None
    rows = {(table.module, table.name): table.rows for table in scaled.tables}
    request = plan.basis.request
    tables = tuple(
        table._replace(
            rows=rows[table.path, table.name],
            bytes=rows[table.path, table.name] * table.dim * table.element_size,
        )
        for table in request.tables
    )
    try:
        basis = basis_of(layout, replace(request, tables=tables), plan.basis.cluster)
        found = estimates(basis).rank_memory
    except EstimateUnavailable:
        return None
    held = found["hbm"] + found["ddr"] if device == "cpu" else found["hbm"]
    return [int(size) for size in held]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
