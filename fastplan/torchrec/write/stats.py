"""TorchRec's statistics of a plan, which take longer to write than the plan takes to find."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import PlanDebugStats, Topology
from torchrec.distributed.types import ShardingPlan

from fastplan.planning.run import Run
from fastplan.torchrec import collector
from fastplan.torchrec.read.cluster import copied
from fastplan.torchrec.write import hooks, stats_table
from fastplan.torchrec.write.lazy import LazyList

_STOCK_LOG = EmbeddingStats.log
_MOST_UNREAD = 8  # each holds a whole plan


def log_plan(planner: Any, run: Run, plan: ShardingPlan, sharders: list[Any]) -> None:
    """Lets all of the planner's statistics log the plan of a run."""
    if not planner._stats:
        return
    run.finish()
    run_time = run.seconds["total"]
    proposals, kept = planner._num_proposals, planner._fastplan.best_plan

    def best_plan() -> Any:
        if planner.last_run is run:
            return planner._best_plan
        return kept() if callable(kept) else kept  # another plan has been made since

    # Whoever reassigns these for a plan puts them back before the table is read.
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
            log(each, run, known, arguments, planner._fastplan.best_plan)


def log(
    stats: Any,
    run: Run,
    known: dict[str, Any],
    arguments: Callable[..., dict[str, Any]],
    best_plan: Any,
) -> None:
    """Lets the statistics log a plan. `best_plan` has its options, or makes them.

    TorchRec's own go to a logger at level INFO, which is off unless a job turns it on. Nobody
    hears them then, and their table is written when it is first read. Where somebody does, the
    plans are counted only as far as that takes no longer than planning, and the table is written
    without the options as objects, if it can be.
    """
    if not _is_stock(stats):
        with collector.resumed():
            stats.log(**arguments(known, lambda: run.plans))
        return
    if torchrec_stats.logger.isEnabledFor(logging.INFO) or not hooks.does_nothing(
        torchrec_stats.EventLoggingHandler.log_event
    ):
        if stats_table.can_write(stats, best_plan, known):
            stats_table.write(stats, best_plan, {**known, "num_plans": run.logged_plans()})
        else:
            stats.log(**arguments(known, run.logged_plans))
        return
    present = stats._stats_table
    is_unread = isinstance(present, LazyList) and not present.is_built
    # A table is as wide as the widest before it, so those that nobody has read are written first.
    unread = [
        *(present.source if is_unread else ()),
        partial(arguments, _as_it_is(known), lambda: run.plans),
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


def _as_it_is(known: dict[str, Any]) -> dict[str, Any]:
    """The same for a table that is written later: all of this may change until then."""
    topology, rules = known["topology"], known["constraints"] or {}
    names = {name for tables in known["sharding_plan"].plan.values() for name in tables}
    data = getattr(known["enumerator"], "_sharder_data_map", None) or {}
    sharders = {
        key: replace(each, fused_params=dict(each.fused_params)) for key, each in data.items()
    }
    return {
        **known,
        "topology": copied(topology) if type(topology) is Topology else topology,
        "storage_reservation": copy.copy(known["storage_reservation"]),
        "enumerator": SimpleNamespace(_sharder_data_map=sharders),
        "constraints": {name: copy.copy(rules[name]) for name in names if rules.get(name)},
    }


def _is_stock(stats: Any) -> bool:
    return (
        type(stats) is EmbeddingStats
        and "log" not in vars(stats)
        and EmbeddingStats.log is _STOCK_LOG
    )
