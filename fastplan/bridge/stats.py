"""TorchRec's statistics of a plan, which take longer to write than the plan takes to find."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import PlanDebugStats
from torchrec.distributed.types import ShardingPlan

from fastplan.bridge import collector, hooks
from fastplan.bridge.lazy import LazyList
from fastplan.bridge.run import Run

_STOCK_LOG = EmbeddingStats.log


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

    def arguments(plans: int) -> dict[str, Any]:
        return {**known, "num_plans": plans, "best_plan": best_plan()}

    with run.phase("stats"):
        for each in planner._stats:
            log(each, run, arguments)


def log(stats: Any, run: Run, arguments: Callable[[int], dict[str, Any]]) -> None:
    """Lets the statistics log a plan, given by the number of plans it is chosen from.

    TorchRec's own go to a logger at level INFO, which is off unless a job turns it on. Nobody
    hears them then, and their table is written when it is first read. Where somebody does, the
    plans are counted only as far as that takes no longer than planning.
    """
    if not _is_stock(stats):
        with collector.resumed():
            stats.log(**arguments(run.plans))
        return
    if torchrec_stats.logger.isEnabledFor(logging.INFO) or not hooks.does_nothing(
        torchrec_stats.EventLoggingHandler.log_event
    ):
        stats.log(**arguments(run.logged_plans()))
        return

    def table() -> list[str]:
        written = EmbeddingStats()
        written.log(**arguments(run.plans))
        stats._width = written._width
        lines: list[str] = written._stats_table
        return lines

    stats._stats_table = LazyList(table)


def _is_stock(stats: Any) -> bool:
    return (
        type(stats) is EmbeddingStats
        and "log" not in vars(stats)
        and EmbeddingStats.log is _STOCK_LOG
    )
