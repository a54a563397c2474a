"""Why an attempt ended: the rank that failed first, which need not be the rank that says so.

A killed process says nothing: its record stops. The ranks that wait for it raise an error about a
lost connection, or about a time-out. So an error of that kind is not the cause if another rank's
record stops. torchrun ends all other ranks after the first failure, and their records stop as well:
after any other error, a record that stops means nothing.
"""

from __future__ import annotations

import re

from fastplan.ett.phases import phase_name
from fastplan.ett.timeline import Attempt, RankTimeline
from fastplan.report.units import format_ranks

# What gloo, NCCL and torch's store report about another process that is gone or does not answer.
_LOST_PEER = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|closed by peer|broken pipe|socket closed"
    r"|failed to recv|remote process exited|nccl(?:remote|system)error|unhandled system error"
    r"|timed? ?out|timeout|heartbeat|Dist(?:Backend|Network|Store)Error",
    re.IGNORECASE,
)
_SILENT = "stopped without an error message"


def end_cause(attempt: Attempt) -> str | None:
    """Returns why an attempt was not the last, or did not end normally; None if it did."""
    failures = sorted(
        (at, rank.rank, cause) for rank in attempt.ranks for cause, at in rank.failures
    )
    silent = [rank for rank in attempt.ranks if not (rank.ended or rank.failures)]
    own = [failure for failure in failures if not is_lost_peer(failure[2])]
    if own or (failures and not silent):
        _, number, cause = (own or failures)[0]
        return f"rank {number}: {cause}"
    if silent:
        return _silent_text(silent, len(attempt.ranks)) + _noticed_text(failures)
    return "ended normally and was restarted" if attempt.failed else None


def is_lost_peer(cause: str) -> bool:
    """Returns whether an error is about another rank that is gone or does not answer."""
    return _LOST_PEER.search(cause) is not None


def _silent_text(silent: list[RankTimeline], world: int) -> str:
    named = format_ranks([rank.rank for rank in silent], world)
    plural = "ranks" if len(silent) > 1 else "rank"
    ranks = named.replace("r", f"{plural} ", 1) if named.startswith("r") else named
    phases = {phase_name(rank.killed_in).title for rank in silent if rank.killed_in is not None}
    where = f" in {phases.pop()}" if len(phases) == 1 else ""
    return f"{ranks} {_SILENT}{where} (killed?)"


def _noticed_text(failures: list[tuple[int, int, str]]) -> str:
    if not failures:
        return ""
    _, number, cause = failures[0]
    return f"; rank {number} noticed: {cause}"
