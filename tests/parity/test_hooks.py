"""Logging hooks that somebody has put in place hear what TorchRec would tell them."""

import logging
from contextlib import nullcontext
from typing import Any

import pytest
from torchrec.distributed import logger as torchrec_logger
from torchrec.distributed.planner import planners
from torchrec.distributed.planner.types import PlannerError

from .compare import ADDRESS
from .small import small
from .subject import TORCHREC_VERSION, FastPlanner, TorchRecPlanner

HOOKS = [name for name in vars(planners) if name.startswith("log_")]
# Wall-clock time, and the objects that are compared elsewhere.
UNCOMPARED = {"planner_time_seconds"}


def heard(
    planner_class: type, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False, **arguments: Any
) -> list[Any]:
    """The hooks' calls in order, without what can't be equal."""
    calls = []

    def listen(name: str) -> Any:
        def hook(*args: Any, **kwargs: Any) -> None:
            plain = [len(arg) if isinstance(arg, list) else str(arg) for arg in args]
            named = {
                k: ADDRESS.sub("address", str(v)) for k, v in kwargs.items() if k not in UNCOMPARED
            }
            calls.append((name, plain, named))

        return hook

    with monkeypatch.context() as patch:
        for name in HOOKS:
            patch.setattr(planners, name, listen(name))
        built = small(**arguments)
        planner = planner_class(**built.planner_kwargs)
        with pytest.raises(PlannerError) if fails else nullcontext():
            planner.plan(built.module, built.sharders)
    return sorted(calls, key=lambda call: call[0])


def test_every_hook_hears_the_same(monkeypatch):
    expected = heard(TorchRecPlanner, monkeypatch)
    actual = heard(FastPlanner, monkeypatch)
    if TORCHREC_VERSION >= (1, 7):
        assert {name for name, _, _ in expected} >= {"log_planning_result", "log_proposer_result"}
    for theirs, ours in zip(expected, actual, strict=True):
        assert ours == theirs


def test_the_method_logger_hears_a_plan_when_it_has_a_handler():
    messages: list[Any] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.msg)

    listener = Listener()
    built = small()
    planner = FastPlanner(**built.planner_kwargs)
    logging.disable(logging.NOTSET)
    torchrec_logger.method_logger.addHandler(listener)
    try:
        planner.plan(built.module, built.sharders)
    finally:
        torchrec_logger.method_logger.removeHandler(listener)
    assert any("plan" in str(message) for message in messages)
