"""Why a part of planning can't be native in this process.

There are two kinds of reasons. Other code has replaced a function or constant of TorchRec, which is
looked for at every plan. Or TorchRec's source is neither known nor proven to agree with the core.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from fastplan.torchrec.support import watch
from fastplan.torchrec.support.known import HOOKED
from fastplan.torchrec.support.watch import HOOKS, PLANNER

if TYPE_CHECKING:
    from fastplan.torchrec.support.verdict import Verdict

Reasons = Mapping[str, str]  # by part; a part without one is native

_NONE: Reasons = MappingProxyType({})
_watch = watch.Watch()
_lock = threading.Lock()
_trial = threading.local()  # the reasons that a self-check assumes in its thread
_replaced: Reasons = _NONE
_verdict: Verdict | None = None  # None before the first plan


def look() -> None:
    """Looks for replaced functions and constants. Call it before every plan."""
    global _replaced
    _replaced = {
        part: f"{name} was replaced by other code" for part, name in _watch.replaced().items()
    }
    if _verdict is None and not _is_trial():
        decide()


def is_decided() -> bool:
    """Whether the verdict on TorchRec is known, so that no self-check is due."""
    return _verdict is not None or _is_trial()


def decide() -> Verdict:
    """Returns the verdict on TorchRec. The first call may run a self-check."""
    global _verdict
    with _lock:
        if _verdict is None:
            from fastplan.torchrec.support.verdict import verdict

            _verdict = verdict(_watch)
        return _verdict


def _is_trial() -> bool:
    return hasattr(_trial, "reasons")


def torchrec_name() -> str:
    """Returns the name of TorchRec's source in cache keys: a release, or a version and digest."""
    return "self-check" if _is_trial() else decide().name


def note() -> str | None:
    """Returns what reports say about plans with this TorchRec; None if it is known."""
    return None if _verdict is None or _is_trial() else _verdict.note


def why_not(*parts: str) -> str:
    """Returns why one of these parts must run in Python; empty if all are native."""
    assumed: Reasons = _trial.reasons if _is_trial() else _verdict.reasons if _verdict else _NONE
    for part in parts:
        reason = _replaced.get(part) or assumed.get(part)
        if reason:
            return reason
    return ""


def why_not_class(stock: type) -> str:
    """Returns why a class of TorchRec's must run in Python; empty if its part is native."""
    return why_not(*watch.parts_of(stock))


def why_not_planner() -> str:
    """Returns why TorchRec's whole planner must run; empty if it need not."""
    reason = why_not(PLANNER)
    if not reason and HOOKS in _replaced and torchrec_name() not in HOOKED:
        # Versions call their logging hooks with different arguments.
        return _replaced[HOOKS]
    return reason


@contextmanager
def assumed(reasons: Reasons) -> Iterator[None]:
    """Plans of this thread use these reasons in place of a verdict, for a self-check."""
    _trial.reasons = reasons
    try:
        yield
    finally:
        del _trial.reasons
