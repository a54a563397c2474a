"""The self-check: plans small models with TorchRec's planner and with fastplan's, and compares."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner

from fastplan.torchrec.plan_facts import (
    PlanFacts,
    error_facts,
    first_difference,
    option_facts,
    plan_facts,
)
from fastplan.torchrec.planner import EmbeddingShardingPlanner
from fastplan.torchrec.support import support
from fastplan.torchrec.support.proof_cases import Case, Unavailable, cases
from fastplan.torchrec.support.watch import ESTIMATES, PLANNER

Reasons = dict[str, str]

_FEWEST = 10  # plans to compare, or TorchRec has changed too much


class _Outcome(NamedTuple):
    """What a planner made of a case: its options, and its plan or error."""

    options: PlanFacts
    plan: PlanFacts
    counts: tuple[int, int]  # of proposals and plans


class _Compared(NamedTuple):
    """The difference of two outcomes, and what fastplan reports."""

    difference: str | None
    in_options: bool
    engine: str
    reason: str


def prove(
    draws: int = 1,
    progress: Callable[[int, Case], None] | None = None,
    known: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Reasons, int]:
    """Returns why parts are not native, by part, and how many plans were compared.

    A part whose plans differ falls back, and its case is compared again; if the plans still differ,
    TorchRec's planner must plan everything.

    Args:
        draws: how often the models are drawn.
        progress: called with the number of finished cases and the next case.
        known: parts that are known to fall back, with the reasons.
    """
    reasons: Reasons = dict(known)
    compared = done = 0
    with _quiet():
        for draw in range(draws):
            for case in cases(seed=10 * draw):
                if progress is not None:
                    progress(done, case)
                done += 1
                if PLANNER not in reasons:
                    compared += _check(case, reasons)
    if compared < _FEWEST and PLANNER not in reasons:
        reasons[PLANNER] = f"the self-check could compare only {compared} plans"
    return reasons, compared


def _check(case: Case, reasons: Reasons) -> int:
    """Compares one case, and adds the reasons of parts that must fall back. Returns the plans."""
    try:
        expected = _outcome(TorchRecPlanner, case)
    except Unavailable:
        return 0
    for part in dict.fromkeys((ESTIMATES, case.part, PLANNER)):
        found = _compare(case, expected, reasons)
        wrong = _what_is_wrong(found, reasons)
        if wrong is None:
            break
        if part == ESTIMATES != case.part and not _may_be_estimates(found):
            continue
        reasons.setdefault(part, f"{case.name}: {wrong}")
    return 1


def _may_be_estimates(found: _Compared) -> bool:
    """Whether other estimates may explain what is wrong with a search."""
    return found.in_options or found.engine == "torchrec"


def _what_is_wrong(found: _Compared, reasons: Reasons) -> str | None:
    """Returns a difference, or a fallback that no known reason explains; None if all is well."""
    if found.difference is not None:
        return found.difference
    if found.engine == "native" or any(each in found.reason for each in reasons.values()):
        return None
    return found.reason


def _compare(case: Case, expected: _Outcome, reasons: Reasons) -> _Compared:
    planner: list[Any] = []
    with support.assumed(reasons):
        actual = _outcome(EmbeddingShardingPlanner, case, planner)
    run = planner[0].last_run
    engine, reason = ("native", "") if run is None else (run.engine, run.reason or "")
    if found := first_difference(actual.options, expected.options):
        return _Compared(str(found), True, engine, reason)
    if found := first_difference(actual.plan, expected.plan):
        return _Compared(str(found), False, engine, reason)
    counts = f"TorchRec has {expected.counts} proposals and plans, fastplan has {actual.counts}"
    differs = expected.counts != actual.counts
    return _Compared(counts if differs else None, False, engine, reason)


def _outcome(kind: type, case: Case, made: list[Any] | None = None) -> _Outcome:
    """Plans a case. Raises Unavailable if this TorchRec does not have its parts."""
    inputs = case.make()
    planner = kind(**inputs.arguments)
    if made is not None:
        made.append(planner)
    plan: PlanFacts = {"": {}}
    try:
        if case.searches or made is not None:
            found = planner.plan(inputs.module, inputs.sharders)
            if case.searches:
                plan = plan_facts(found, planner._perf_model.rate(plan=planner._best_plan))
        else:
            planner._enumerator.enumerate(inputs.module, inputs.sharders)
    except Exception as error:
        # A case that only lists options may have no plan.
        if case.searches or type(error).__name__ != "PlannerError":
            plan = error_facts(error)
    options = option_facts(planner._enumerator.last_stored_search_space or [])
    counts = (planner._num_proposals, planner._num_plans) if case.searches else (0, 0)
    return _Outcome(options, plan, counts)


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops what TorchRec and fastplan log in this thread: the models are not the user's."""
    own = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        return record.thread != own

    names = [name for name in logging.root.manager.loggerDict if _is_ours(name)]
    loggers = [logging.getLogger(name) for name in names]
    for each in loggers:
        each.addFilter(keep)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each in loggers:
            each.removeFilter(keep)


def _is_ours(name: str) -> bool:
    return name.startswith(("torchrec", "fastplan", "MethodLogger"))
