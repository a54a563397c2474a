"""Creates a run's folder from a model and plans, and checks them before a process starts."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.inputs import is_weighted, module_inputs
from fastplan.measure.rerate import basis_of
from fastplan.measure.scaling import MemoryLimit, scaled_layout, scaled_spec, smallest_factor
from fastplan.measure.settings import (
    FAILURES,
    MODEL,
    ROUNDS,
    RUN,
    LaunchSettings,
    MeasureError,
    Settings,
    plan_file,
)
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
    """The model and the plans to measure.

    Attributes:
        spec: The model.
        target: package.module:function of a real model.
        plans: The plans.
        labels: Distinct labels of the plans.
    """

    spec: ModelSpec
    target: str | None
    plans: tuple[Plan, ...]
    labels: tuple[str, ...]


def prepare(
    folder: Path,
    subject: Subject,
    group: LaunchSettings,
    settings: Settings,
    *,
    scale: int | None,
    room: MemoryLimit,
) -> int:
    """Creates the folder of a measurement. A folder without any measured turn is used again.

    Args:
        folder: The folder.
        subject: The model and the plans.
        group: The processes to start.
        settings: How plans are measured.
        scale: The factor to divide rows by; None is the smallest that fits.
        room: The memory limit for plans.

    Returns:
        The factor.

    Raises:
        MeasureError: The plans can't be measured, or the folder already has a measurement.
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
                f"{label}: {shortage}; use fewer rows, for example with --scale-rows auto"
            )
    _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plan_file(folder, 0).parent.mkdir(exist_ok=True)
    write_spec(scaled, folder / MODEL)
    for number, layout in enumerate(layouts):
        write_plan(Plan(name=spec.name, layout=layout), plan_file(folder, number))
    about = _about(subject, group, settings, factor, scaled, layouts)
    (folder / ROUNDS).touch()
    (folder / RUN).write_text(json.dumps(about, indent=2) + "\n")
    return factor


def _clear(folder: Path) -> None:
    """Removes a failed attempt from the folder.

    Raises MeasureError for any other measurement, which may still be running.
    """
    if not (folder / RUN).exists():
        return
    rounds, failures = folder / ROUNDS, folder / FAILURES
    if not failures.exists() or (rounds.exists() and rounds.stat().st_size):
        raise MeasureError(f"{folder} already contains a measurement: choose another folder")
    failures.unlink()


def _check_dataset(name: str | None) -> None:
    """Checks the function here, because ranks could only fail without it."""
    if name is None:
        return
    if not is_reference(name):
        raise MeasureError(f"the dataset must be package.module:function, not {name!r}")
    try:
        found = find(name)
    except BadReference as error:
        raise MeasureError(f"the dataset {name}: {error}") from error
    if not callable(found):
        raise MeasureError(f"the dataset {name} is a {type(found).__name__}, not a function")


def layout_key(layout: Layout) -> str:
    """Returns a hash of a layout, which does not depend on the name of its file."""
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


def _check_plan(label: str, plan: Plan, spec: ModelSpec, group: LaunchSettings) -> None:
    if plan.ranks > group.ranks or (plan.basis is not None and plan.ranks != group.ranks):
        raise MeasureError(
            f"{label} is a plan for {plan.ranks} ranks, not for {group.ranks}: change --nproc, "
            f"or plan for {group.ranks} ranks"
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
                f"{label}: table {table.name} is {table.shape}, but {shape} in the model"
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
                f"ranks, but these hosts have {group.ranks_per_host}"
            )


def _factor(subject: Subject, group: LaunchSettings, scale: int | None, room: MemoryLimit) -> int:
    if scale is not None:
        return scale
    layouts = [plan.layout for plan in subject.plans]
    return smallest_factor(layouts, subject.spec, group, room)


def _layout(plan: Plan, scaled: ModelSpec, group: LaunchSettings) -> Layout:
    """Returns the plan's layout on the devices in use, for scaled tables."""
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


def _about(
    subject: Subject,
    group: LaunchSettings,
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
                "memory": _estimated_bytes(plan, scaled, layout, group.device),
            }
            for label, plan, layout in plans
        ],
    }


def _estimated_bytes(
    plan: Plan, scaled: ModelSpec, layout: Layout, device: str
) -> list[int] | None:
    """Returns the estimated memory of the measured tables by rank."""
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
