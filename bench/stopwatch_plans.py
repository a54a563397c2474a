"""The plans of the stopwatch, and what each cost model predicts for them."""

import random
from typing import Any

import numpy as np

from bench.runs import quiet
from fastplan.engine.layout import chosen_space
from fastplan.engine.optimize import Objectives, Optimize
from fastplan.engine.problem import Problem
from fastplan.engine.step import step_of
from fastplan.measure.rerate import reestimate
from fastplan.model.plan import RANK, Plan
from fastplan.planning.plan import plan
from fastplan.spec.hardware import Hardware, topology_arguments
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, ModuleSpec, replace

DEFAULT, CALIBRATED = "TorchRec default", "TorchRec calibrated"
RATING, STEP = "fastplan rating", "fastplan step"
MODELS = ("torchrec", "calibrated", "hardware")  # cost models
SMALL = 1_000  # rows of tables that a data-parallel plan replicates
SECONDS = 2.0  # of the optimizer
SLOWEST = 2.5  # plans of one type that are predicted to be slower than this x default are left out
# TorchRec proposes row-wise tables only on GPUs, but can run them on CPUs.
_TYPES = ("data_parallel", "table_wise", "column_wise", "table_column_wise", "row_wise")


def make_plans(spec: ModelSpec, hardware: Hardware) -> dict[str, Plan]:
    """Returns the plans of a model by name. The same plan may have several names."""
    ranks, local = spec.topology.world_size, spec.topology.local_world_size
    simple = {"world_size": ranks, "local_world_size": local, "compute_device": "cpu"}
    plans = {
        DEFAULT: _torchrec_plan(spec, simple),
        CALIBRATED: _torchrec_plan(spec, topology_arguments(hardware, ranks, local)),
    }
    job = lower(_on(spec, hardware))
    for name, goal in ((RATING, "rating"), (STEP, "step")):
        how = Optimize(time_budget=SECONDS, objectives=Objectives(minimize=goal))
        plans[name] = plan(job, optimize=how).plan()
    for kind in ("table_wise", "column_wise", "row_wise"):
        plans[kind.replace("_", "-")] = _of_types(spec, lambda rows, kind=kind: kind)
    plans["small data-parallel"] = _of_types(
        spec, lambda rows: "data_parallel" if rows <= SMALL else "table_wise"
    )
    plans["random"] = _shuffled(plans["table-wise"], ranks, random.Random(spec.name))
    limit = SLOWEST * _predicted_step(plans[DEFAULT], spec, hardware)
    kept = (DEFAULT, CALIBRATED, RATING, STEP)
    return {
        name: each
        for name, each in plans.items()
        if name in kept or _predicted_step(each, spec, hardware) <= limit
    }


def predictions(plan: Plan, spec: ModelSpec, hardware: Hardware) -> dict[str, Any]:
    """Returns the milliseconds that each cost model predicts, and the phases of the step."""
    own = replace(_on(spec, hardware), costs="torchrec")
    basis = {
        "torchrec": reestimate(plan, lower(_with_every_type(spec))).basis,
        "calibrated": reestimate(plan, lower(_with_every_type(own))).basis,
    }
    step = _step(plan, spec, hardware)
    found: dict[str, Any] = {name: each.record.rating for name, each in basis.items() if each}
    phases: dict[str, float] = {}
    for phase in step.phases:
        phases[phase.name] = phases.get(phase.name, 0.0) + phase.ms
    return {**found, "hardware": step.ms, "phases": phases}


def _step(plan: Plan, spec: ModelSpec, hardware: Hardware) -> Any:
    basis = reestimate(plan, lower(_with_every_type(_on(spec, hardware)))).basis
    assert basis is not None
    _, space = chosen_space(basis.request, basis.record)
    options = np.arange(space.options, dtype=np.int32)
    return step_of(Problem(space, basis.cluster), options, basis.record.ranks)


def _predicted_step(plan: Plan, spec: ModelSpec, hardware: Hardware) -> float:
    return float(_step(plan, spec, hardware).ms)


def _on(spec: ModelSpec, hardware: Hardware) -> ModelSpec:
    topology = replace(spec.topology, hardware=hardware)
    return replace(spec, topology=topology, costs="hardware")


def _with_every_type(spec: ModelSpec) -> ModelSpec:
    kernels = {kind: ("dense" if kind == "data_parallel" else "fused",) for kind in _TYPES}
    module = ModuleSpec(sharding_types=_TYPES, compute_kernels=kernels)
    return replace(spec, modules=dict.fromkeys(spec.modules, module))


def _of_types(spec: ModelSpec, kind_of: Any) -> Plan:
    """Returns TorchRec's plan if each table must have the type that its rows decide."""
    tables = tuple(replace(each, sharding_types=(kind_of(each.rows),)) for each in spec.tables)
    return plan(lower(replace(_with_every_type(spec), tables=tables))).plan()


def _shuffled(plan: Plan, ranks: int, draw: random.Random) -> Plan:
    """Returns a plan with every shard on a rank that is drawn."""
    tables = []
    for each in plan.layout.tables:
        shards = each.shards.copy()
        shards[:, RANK] = [draw.randrange(ranks) for _ in shards]
        tables.append(each._replace(shards=shards))
    layout = replace(plan.layout, tables=tuple(tables))
    return replace(plan, layout=layout, basis=None, fingerprint=None)


def _torchrec_plan(spec: ModelSpec, topology: dict[str, Any]) -> Plan:
    """Returns the plan of TorchRec's own planner, with its defaults and this topology."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner
    from torchrec.distributed.planner.types import ParameterConstraints, Topology

    from fastplan.measure.step import build
    from fastplan.torchrec.plan_files import describe_plan

    with quiet():
        planner = EmbeddingShardingPlanner(
            topology=Topology(**topology),
            batch_size=spec.batch_size,
            constraints={
                each.name: ParameterConstraints(pooling_factors=list(each.pooling))
                for each in spec.tables
            },
        )
        built = build(spec, None)
        return describe_plan(planner.plan(built.module, built.sharders), spec.name)
