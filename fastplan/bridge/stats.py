"""TorchRec's statistics of a plan, which take longer to write than the plan takes to find."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats

from fastplan.bridge import hooks
from fastplan.bridge.lazy import LazyList

_STOCK_LOG = EmbeddingStats.log


def log(stats: Any, arguments: Callable[[], dict[str, Any]]) -> None:
    """Lets the statistics log a plan.

    TorchRec's own go to a logger at level INFO, which is off unless a job turns it on. Nobody
    hears them then, and their table is written when it is first read.
    """
    if not _unheard(stats):
        stats.log(**arguments())
        return

    def table() -> list[str]:
        written = EmbeddingStats()
        written.log(**arguments())
        stats._width = written._width
        lines: list[str] = written._stats_table
        return lines

    stats._stats_table = LazyList(table)


def _unheard(stats: Any) -> bool:
    return (
        type(stats) is EmbeddingStats
        and "log" not in vars(stats)
        and EmbeddingStats.log is _STOCK_LOG
        and not torchrec_stats.logger.isEnabledFor(logging.INFO)
        and hooks.does_nothing(torchrec_stats.EventLoggingHandler.log_event)
    )
