"""Sharding plans for TorchRec: the same plans, found thousands of times faster.

Names are resolved when they are first used: importing fastplan loads neither torch nor numba.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name is defined; some have another name there.
_MODULE_OF_NAME = {
    "Cache": "fastplan.cache.plan_cache",
    "ConstraintError": "fastplan.model.objectives",
    "CostError": "fastplan.costs.errors",
    "CostEstimator": "fastplan.torchrec.read.custom",
    "EmbeddingShardingPlanner": "fastplan.torchrec.planner",
    "ExportError": "fastplan.torchrec.export_tables",
    "Kernel": "fastplan.costs.names",
    "ModelsDiffer": "fastplan.torchrec.collective",
    "ObjectiveModel": "fastplan.torchrec.read.custom",
    "Objectives": "fastplan.model.objectives",
    "Optimize": "fastplan.engine.optimize",
    "PlanFileError": "fastplan.plans.checks",
    "PlanMismatch": "fastplan.torchrec.plan_files",
    "PlanReporter": "fastplan.torchrec.api.reporter",
    "PlannerExecutor": "fastplan.torchrec.api.executor",
    "PlannerProvider": "fastplan.torchrec.api.provider",
    "ReplicaGroupsError": "fastplan.model.replicas",
    "ReplicaPlanError": "fastplan.plans.replicas",
    "Replan": "fastplan.planning.policy",
    "Replicas": "fastplan.planning.replicas",
    "ReshardError": "fastplan.torchrec.live.agreement",
    "Result": "fastplan.planning.search",
    "ShardingType": "fastplan.costs.names",
    "StoreError": "fastplan.cache.stores.base",
    "StoredPlanLoader": "fastplan.torchrec.loader",
    "check_2d_plan": "fastplan.torchrec.two_dimensional",
    "check_replicas": "fastplan.torchrec.two_dimensional",
    "cost_estimators": "fastplan.torchrec.read.custom",
    "explain_miss": "fastplan.cache.why_miss",
    "export_spec": "fastplan.torchrec.export",
    "group_topology": "fastplan.torchrec.two_dimensional",
    "load_plan": "fastplan.torchrec.plan_files",
    "patch": "fastplan.torchrec.patch.patch",
    "plan": "fastplan.planning.specs:plan_spec",
    "plan_2d": "fastplan.torchrec.two_dimensional",
    "plan_objective": "fastplan.costs.functions",
    "replica_groups_of": "fastplan.torchrec.two_dimensional",
    "reshard": "fastplan.torchrec.resharding",
    "save_plan": "fastplan.torchrec.plan_files",
    "shard_cost": "fastplan.costs.functions",
}

_SUBMODULES = ("bundle", "checkpoint", "costs", "ett")

# Packages that fastplan does not install by itself.
_OPTIONAL_PACKAGES = ("torch", "torchrec", "fbgemm_gpu", "numba")

__all__ = [
    "Cache",
    "ConstraintError",
    "CostError",
    "CostEstimator",
    "EmbeddingShardingPlanner",
    "ExportError",
    "Kernel",
    "ModelsDiffer",
    "ObjectiveModel",
    "Objectives",
    "Optimize",
    "PlanFileError",
    "PlanMismatch",
    "PlanReporter",
    "PlannerExecutor",
    "PlannerProvider",
    "Replan",
    "ReplicaGroupsError",
    "ReplicaPlanError",
    "Replicas",
    "ReshardError",
    "Result",
    "ShardingType",
    "StoreError",
    "StoredPlanLoader",
    "__version__",
    "check_2d_plan",
    "check_replicas",
    "cost_estimators",
    "explain_miss",
    "export_spec",
    "group_topology",
    "load_plan",
    "patch",
    "plan",
    "plan_2d",
    "plan_objective",
    "replica_groups_of",
    "reshard",
    "save_plan",
    "shard_cost",
]

if TYPE_CHECKING:
    from fastplan.cache.plan_cache import Cache
    from fastplan.cache.stores.base import StoreError
    from fastplan.cache.why_miss import explain_miss
    from fastplan.costs.errors import CostError
    from fastplan.costs.functions import plan_objective, shard_cost
    from fastplan.costs.names import Kernel, ShardingType
    from fastplan.engine.optimize import Optimize
    from fastplan.model.objectives import ConstraintError, Objectives
    from fastplan.model.replicas import ReplicaGroupsError
    from fastplan.planning.policy import Replan
    from fastplan.planning.replicas import Replicas
    from fastplan.planning.search import Result
    from fastplan.planning.specs import plan_spec as plan
    from fastplan.plans.checks import PlanFileError
    from fastplan.plans.replicas import ReplicaPlanError
    from fastplan.torchrec.api.executor import PlannerExecutor
    from fastplan.torchrec.api.provider import PlannerProvider
    from fastplan.torchrec.api.reporter import PlanReporter
    from fastplan.torchrec.collective import ModelsDiffer
    from fastplan.torchrec.export import export_spec
    from fastplan.torchrec.export_tables import ExportError
    from fastplan.torchrec.live.agreement import ReshardError
    from fastplan.torchrec.loader import StoredPlanLoader
    from fastplan.torchrec.patch.patch import patch
    from fastplan.torchrec.plan_files import PlanMismatch, load_plan, save_plan
    from fastplan.torchrec.planner import EmbeddingShardingPlanner
    from fastplan.torchrec.read.custom import CostEstimator, ObjectiveModel, cost_estimators
    from fastplan.torchrec.resharding import reshard
    from fastplan.torchrec.two_dimensional import (
        check_2d_plan,
        check_replicas,
        group_topology,
        plan_2d,
        replica_groups_of,
    )


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"fastplan.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'fastplan' has no attribute {name!r}")
    module, _, own_name = _MODULE_OF_NAME[name].partition(":")
    try:
        value = getattr(import_module(module), own_name or name)
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL_PACKAGES:
            raise
        text = f"fastplan.{name} needs {error.name}, which is not installed; "
        text += "`fastplan doctor` shows how to install it"
        raise ModuleNotFoundError(text, name=error.name) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES])


def _runs_as_command() -> bool:
    """Whether this process is the `fastplan` command, which must do without TorchRec."""
    script, words = next(iter(sys.argv), ""), set(pairwise(sys.orig_argv))
    is_module = not words.isdisjoint({("-m", "fastplan"), ("-m", "fastplan.launch")})
    return os.path.basename(script) == "fastplan" or is_module


def _env_is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0") and not _runs_as_command()


def _patch_from_env(how: str) -> None:
    if how not in ("1", "init"):
        raise ValueError(f"FASTPLAN_PATCH must be 1, init or 0, not {how!r}")
    try:
        __getattr__("patch")(init=how == "init")
    except Exception as error:  # whatever TorchRec or torch of another version raises on import
        import logging

        logging.getLogger(__name__).warning(
            "FASTPLAN_PATCH=%s has no effect, TorchRec's planner stays: %r", how, error
        )


def _follow_environment() -> None:
    """Does what FASTPLAN_ETT and FASTPLAN_PATCH ask for.

    A worker that is forked with fastplan imported (`fastplan.launch`) calls it again.
    """
    if _env_is_set("FASTPLAN_ETT"):
        from fastplan.ett import install

        install()
    if _env_is_set("FASTPLAN_PATCH"):
        _patch_from_env(os.environ["FASTPLAN_PATCH"])


_follow_environment()
