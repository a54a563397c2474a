"""Plans specs, without TorchRec."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fastplan.cache.plan_cache import Cache, open_cache
from fastplan.engine.optimize import Optimize
from fastplan.engine.solve import OutOfRange
from fastplan.model.job import CannotPlan, SpecJob
from fastplan.model.plan import Plan
from fastplan.planning.plan import plan
from fastplan.planning.policy import Replan
from fastplan.planning.search import Result

if TYPE_CHECKING:
    from fastplan.planning.replicas import Replicas
    from fastplan.spec.model import ModelSpec


def plan_spec(
    spec: str | os.PathLike[str] | ModelSpec,
    *,
    sku: str | None = None,
    world_size: int | None = None,
    batch_size: int | None = None,
    precision: str | None = None,
    cache: str | os.PathLike[str] | Cache | bool | None = None,
    mode: Literal["parity", "optimize"] = "parity",
    optimize: Optimize | None = None,
    previous: str | os.PathLike[str] | Plan | Result | None = None,
    replan: Replan | None = None,
    replicas: Replicas | int | Literal["auto"] | None = None,
    trust: bool = False,
) -> Result:
    """Plans a spec as TorchRec's planner would plan the model.

    Example:
        result = fastplan.plan("model.yaml", sku="h100", world_size=64)
        result.plan()  # the plan, if `result.placement` is not None

    Args:
        spec: the path of a spec file, or a spec.
        sku: hardware that replaces the spec's: a name of `fastplan skus`, or a file.
        world_size: number of ranks; replaces the spec's.
        batch_size: batch size of one rank; replaces the spec's.
        precision: fp32, fp16 or bf16, for all tables of floating point.
        cache: where plans are looked up and stored, as the planner's `cache`.
        mode: "optimize" improves TorchRec's plan, for one second by default.
        optimize: the settings of the optimizer; implies `mode="optimize"`.
        previous: a plan to follow, the path of its file, or the result of an earlier call.
        replan: the policy for following it.
        replicas: 2D parallelism: the number of replica groups that `world_size` is split into,
            "auto", or a `Replicas`. The plan is then for one group, and `result.replication` has
            the groups and the cost of their sync.
        trust: whether to import the functions that the spec names.

    Returns:
        The plan, with its reports. A job that does not fit is a result, not an error.

    Raises:
        SpecError: the spec file is invalid, or can't be read.
        PlanFileError, OSError: the plan file can't be read.
        HardwareError: the SKU is unknown, or the ranks don't fill its hosts.
        CannotPlan: the spec can't be planned, the arguments exclude each other, or `previous` is a
            result without a plan.
        PlanModelMismatch: `previous` is a plan of another model.
        CostError: a custom cost or objective fails.
        ConstraintError: no plan was found that satisfies `pins` and `together`.
        ReplicaGroupsError: the ranks can't form such replica groups.
        TypeError, ValueError: an argument is not one of the values above.
    """
    from fastplan.spec.lower import lower

    spec = _read(spec, sku, world_size, batch_size, precision)
    if mode not in ("parity", "optimize"):
        raise ValueError(f'`mode` must be "parity" or "optimize", not {mode!r}')
    _check_type("optimize", optimize, Optimize)
    _check_type("replan", replan, Replan)
    if optimize is None and mode == "optimize":
        optimize = Optimize()
    arguments: dict[str, Any] = {"cache": open_cache(cache), "optimize": optimize}
    arguments |= {"previous": _read_previous(previous), "replan": replan}
    if replicas is not None:
        from fastplan.planning.replicas import as_replicas, plan_replicas

        return plan_replicas(spec, as_replicas(replicas), trust=trust, **arguments)
    return plan_job(lower(spec, trust=trust), **arguments)


def _check_type(name: str, value: object, kind: type) -> None:
    """Raises TypeError if an argument is neither of a type nor None."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"`{name}` must be a fastplan.{kind.__name__} or None, not {value!r:.100}")


def _read_previous(previous: object) -> Plan | None:
    """Returns the plan that `previous` stands for; None without one."""
    if previous is None or isinstance(previous, Plan):
        return previous
    if isinstance(previous, str | os.PathLike):
        from fastplan.plans.file import read_plan

        return read_plan(previous)
    if isinstance(previous, Result):
        if previous.placement is None:
            raise CannotPlan(f"`previous` is a result without a plan: {previous.shortage}")
        return previous.plan()
    raise TypeError(
        "`previous` must be a plan, the path of a plan file, or the Result of fastplan.plan(), "
        f"not {type(previous).__name__}"
    )


def _read(
    spec: str | os.PathLike[str] | ModelSpec,
    sku: str | None,
    world_size: int | None,
    batch_size: int | None,
    precision: str | None,
) -> ModelSpec:
    """The spec, read if it is a file, with the given values in place of its own."""
    from fastplan.spec.read import on_cluster, read_spec, with_precision

    if isinstance(spec, str | os.PathLike):
        spec = read_spec(spec)
    spec = on_cluster(spec, sku=sku, world_size=world_size)
    if batch_size is not None:
        spec = replace(spec, batch_size=batch_size)
    return spec if precision is None else with_precision(spec, precision)


def plan_job(
    job: SpecJob,
    *,
    optimize: Optimize | None = None,
    previous: Plan | None = None,
    **more: Any,
) -> Result:
    """Plans a spec's job. Arguments are those of `plan()`.

    TorchRec's planner reports a reason and continues if it can't optimize or can't follow the
    previous plan. This function raises CannotPlan, so that the caller can change the arguments.

    Raises:
        CannotPlan: numbers are beyond exact arithmetic, or the arguments exclude each other.
    """
    objective = job.search.objective
    if objective is not None and optimize is not None:
        raise CannotPlan(
            f"optimize improves a plan's largest rank, and {objective.name} rates plans otherwise: "
            "leave out the objective, or plan without optimize"
        )
    if objective is not None and previous is not None:
        raise CannotPlan("a custom objective rates plans: re-planning does not support that")
    if previous is not None and optimize is not None and not optimize.objectives.follows:
        raise CannotPlan("re-planning does not support objectives, pins or groups")
    if previous is not None and optimize is not None and optimize.offload:
        raise CannotPlan("re-planning does not support offload")
    try:
        return plan(job, optimize=optimize, previous=previous, **more)
    except OutOfRange as error:
        raise CannotPlan(str(error)) from error
