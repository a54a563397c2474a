"""Calls TorchRec's logging hooks with TorchRec's arguments.

In the open-source build they are empty, and collecting their arguments takes longer than planning.
So a hook is called only if other code has replaced the empty function.
"""

from __future__ import annotations

import copy
import dis
import json
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from torchrec.distributed.planner import planners
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import PlanDebugStats, Topology
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.types import ShardingPlan

from fastplan.planning.run import Run
from fastplan.planning.search import Result, Searched
from fastplan.torchrec import compat
from fastplan.torchrec.differences.decisions import log_reservation
from fastplan.torchrec.differences.estimates import build_sharder_data_map
from fastplan.torchrec.differences.stats_events import log_event
from fastplan.torchrec.read.cluster import copied
from fastplan.torchrec.support import support
from fastplan.torchrec.support.watch import STATISTICS
from fastplan.torchrec.write import stats_table
from fastplan.torchrec.write.plan import LazyList

_NOTHING = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
_checked: dict[Any, bool] = {}


def _hook(name: str) -> Callable[..., Any] | None:
    function = getattr(planners, name, None)
    return None if function is None or is_empty_function(function) else function


def is_empty_function(function: Callable[..., Any]) -> bool:
    """Whether a function has an empty body, as a hook has by default."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    if code not in _checked:
        _checked[code] = {step.opname for step in dis.get_instructions(code)} <= _NOTHING
    return _checked[code]


def logs_events() -> bool:
    """Whether something reads the events of TorchRec's statistics."""
    function = log_event()
    return function is not None and not is_empty_function(function)


def _technique(planner: Any) -> Any:
    detect = getattr(planners, "detect_technique", None)
    constraints = planner._constraints
    return detect(list(constraints.values()) if constraints else []) if detect else None


def before_enumeration(planner: Any, reserved: Any) -> Any:
    """Reports reservation and configuration; returns the technique in use."""
    log_reservation(planner)
    constraints, technique = planner._constraints, _technique(planner)
    reservation, kind = planner._storage_reservation, type(planner).__name__
    if hook := _hook("log_storage_reservation"):
        dense = getattr(reservation, "_dense_storage", None)
        kjt = getattr(reservation, "_kjt_storage", None)
        hook(
            reservation_type=type(reservation).__name__,
            percentage=getattr(reservation, "_percentage", None),
            dense_hbm_bytes=dense.hbm if dense else None,
            kjt_hbm_bytes=kjt.hbm if kjt else None,
            original_hbm_per_rank=planner._topology.devices[0].storage.hbm,
            available_hbm_per_rank=reserved.devices[0].storage.hbm,
            planner_type=kind,
            technique=technique,
            hbm_reserved_bytes=getattr(reservation, "_hbm_reserved_bytes", None),
        )
    if hook := _hook("log_planner_config"):
        timeout = planner._timeout_seconds
        hook(
            {
                "planner_type": kind,
                "proposers": ",".join(type(p).__name__ for p in planner._proposers),
                "partitioner": type(planner._partitioner).__name__,
                "perf_model": type(planner._perf_model).__name__,
                "timeout_s": str(timeout) if timeout else "none",
                "num_table_constraints": str(len(constraints)) if constraints else "0",
            },
            technique=technique,
        )
    if constraints and (hook := _hook("log_table_constraints")):
        hook(constraints, kind, technique=technique)
    return technique


def after_enumeration(planner: Any, search_space: list[Any]) -> None:
    """Reports the search space."""
    if hook := _hook("log_search_space_summary"):
        hook(search_space, type(planner).__name__)


def after_proposing(planner: Any, searched: Searched | None) -> None:
    """Reports the result of each proposer."""
    hook = _hook("log_proposer_result")
    if hook is not None and searched is not None:
        kind, technique = type(planner).__name__, _technique(planner)
        for index, report in enumerate(searched.reports()):
            hook(
                planner_type=kind,
                proposer_name=type(planner._proposers[index]).__name__,
                proposer_index=index,
                num_proposals=report.proposals,
                num_plans=report.plans,
                best_perf_rating=None if math.isnan(report.best_rating) else report.best_rating,
                is_winning_proposer=False,
                technique=technique,
            )


def without_plan(facts: dict[str, Any], searched: dict[str, str]) -> None:
    """Reports a search without a plan: TorchRec's facts, with the real facts of the search."""
    if hook := _hook("log_planning_result"):
        hook(**{**facts, **searched})


def after_planning(planner: Any, technique: Any, result: Result, run: Run) -> None:
    """Reports a finished plan."""
    kind = type(planner).__name__
    after_proposing(planner, result.searched)
    if hook := _hook("log_planning_result"):
        hook(planner_type=kind, technique=technique, **_result(planner, result, run))
    for name in ("log_offloading_summary", "log_table_assignment"):
        if hook := _hook(name):
            hook(planner._best_plan, kind, technique=technique)
    for name, about in (
        ("log_ssd_offloading_config", "SSD_OFFLOADING"),
        ("log_mpzch_summary", "MPZCH"),
        ("log_kvzch_summary", "KVZCH"),
    ):
        if hook := _hook(name):
            hook(planner._best_plan, technique=planners.OptimizationTechnique[about])


def search_facts(planner: Any, result: Result, run: Run) -> dict[str, str]:
    """Returns TorchRec's facts about a search; empty if no hook is set."""
    if _hook("log_planning_result") is None:
        return {}
    searched = result.searched
    reports = () if searched is None else searched.reports()
    proposals, plans = planner._num_proposals, planner._num_plans
    names = [type(p).__name__ for p in planner._proposers]
    return {
        "num_proposals": str(proposals),
        "num_plans": str(plans),
        "planner_time_seconds": str(round(run.seconds.get("search", 0.0), 3)),
        "total_failed_proposals": str(proposals - plans),
        "num_proposers": str(len(names)),
        "proposer_classes": ",".join(names),
        "proposals_per_proposer": json.dumps(
            {
                f"{names[i]}_{i}": {
                    "proposals": report.proposals,
                    "cache_hits": report.repeats,
                    "timed_out": report.timed_out,
                }
                for i, report in enumerate(reports)
            }
        ),
    }


def _result(planner: Any, result: Result, run: Run) -> dict[str, str]:
    best = planner._best_plan
    loaded = result.searched is not None and result.searched.loaded
    facts = {
        **search_facts(planner, result, run),
        "success": "True",
        "num_shardable_tables": str(len({option.name for option in best})),
        "sharding_type_distribution": json.dumps(dict(Counter(o.sharding_type for o in best))),
        "plan_source": "loaded" if loaded else "solved",
    }
    if not loaded and result.rating is not None:
        facts["best_perf_rating"] = str(round(result.rating, 6))
    return facts


_STOCK_LOG = EmbeddingStats.log
_MOST_UNREAD = 8  # each has a whole plan


def log_plan(planner: Any, run: Run, plan: ShardingPlan, sharders: list[Any]) -> None:
    """Logs the plan of a run with all of the planner's statistics."""
    if not planner._stats:
        return
    run.finish()
    run_time = run.seconds["total"]
    proposals, kept = planner._num_proposals, planner._fastplan.best_plan

    def best_plan() -> Any:
        if planner.last_run is run:
            return planner._best_plan
        return kept() if callable(kept) else kept  # a newer plan exists

    # A caller that changes these for one plan restores them before the table is read.
    known = {
        "sharding_plan": plan,
        "topology": planner._topology,
        "batch_size": planner._batch_size,
        "storage_reservation": planner._storage_reservation,
        "num_proposals": proposals,
        "num_plans": None,
        "run_time": run_time,
        "best_plan": None,
        "constraints": planner._constraints,
        "enumerator": planner._enumerator,
        "sharders": sharders,
        "debug": planner._debug,
        "debug_stats": PlanDebugStats(
            planner_type=type(planner).__name__, timeout_seconds=planner._timeout_seconds
        ),
    }

    def arguments(given: dict[str, Any], plans: Callable[[], int]) -> dict[str, Any]:
        return {**given, "num_plans": plans(), "best_plan": best_plan()}

    with run.phase("stats"):
        for each in planner._stats:
            log(each, run, known, arguments, planner._fastplan.best_plan, bool(planner._callbacks))


def log(
    stats: Any,
    run: Run,
    known: dict[str, Any],
    arguments: Callable[..., dict[str, Any]],
    best_plan: Any,
    is_changed: bool,
) -> None:
    """Logs a plan with the statistics. `best_plan` has its options, or creates them.

    TorchRec's statistics use a logger at level INFO, which is off by default. If it is off, their
    table is written on first access. If it is on, the plans are counted, and the table is written
    from columns if possible. A plan that callbacks have changed may be one that no table can show:
    its table is written now, because the error belongs to this plan.
    """
    if not _is_stock(stats) or support.why_not(STATISTICS):
        with compat.resumed():
            stats.log(**arguments(known, lambda: run.plans))
        return
    if is_changed or torchrec_stats.logger.isEnabledFor(logging.INFO) or logs_events():
        if stats_table.can_write(stats, best_plan, known):
            stats_table.write(stats, best_plan, {**known, "num_plans": run.plans})
        else:
            stats.log(**arguments(known, lambda: run.plans))
        return
    present = stats._stats_table
    is_unread = isinstance(present, LazyList) and not present.is_built
    # A table is as wide as the widest one before it, so pending tables are written first.
    unread = [
        *(present.source if is_unread else ()),
        partial(arguments, _snapshot(known), lambda: run.plans),
    ]
    unread = unread[-_MOST_UNREAD:]

    def table() -> list[str]:
        written = EmbeddingStats()
        written._width = stats._width
        for each in unread:
            written.log(**each())
        stats._width = max(stats._width, written._width)
        lines: list[str] = written._stats_table
        return lines

    stats._stats_table = LazyList(table, source=unread)


def _snapshot(known: dict[str, Any]) -> dict[str, Any]:
    """Returns a snapshot for a table that is written later."""
    topology, rules = known["topology"], known["constraints"] or {}
    names = {name for tables in known["sharding_plan"].plan.values() for name in tables}
    data = _sharder_data(known)
    sharders = {
        key: replace(each, fused_params=dict(each.fused_params)) for key, each in data.items()
    }
    return {
        **known,
        "topology": copied(topology) if type(topology) is Topology else topology,
        "storage_reservation": copy.copy(known["storage_reservation"]),
        "enumerator": SimpleNamespace(_sharder_data_map=sharders),
        # Up to 1.6 the table is written from the sharders themselves.
        "sharders": known["sharders"] if data else [*map(_sharder_facts, known["sharders"])],
        "constraints": {name: copy.copy(rules[name]) for name in names if rules.get(name)},
    }


def _sharder_data(known: dict[str, Any]) -> dict[str, Any]:
    """Returns the data that TorchRec's table would be written from: enumerators may have none."""
    data = getattr(known["enumerator"], "_sharder_data_map", None)
    if data is None and known["debug"] and build_sharder_data_map is not None:
        data = build_sharder_data_map({sharder_name(s.module_type): s for s in known["sharders"]})
    return data or {}


def _sharder_facts(sharder: Any) -> Any:
    """Returns what a table of statistics shows of a sharder: its class, module and cache."""
    facts = type(type(sharder).__name__, (), {})()
    facts.module_type = sharder.module_type
    facts.fused_params = copy.copy(getattr(sharder, "fused_params", None))
    return facts


def _is_stock(stats: Any) -> bool:
    return (
        type(stats) is EmbeddingStats
        and "log" not in vars(stats)
        and EmbeddingStats.log is _STOCK_LOG
    )
