"""Both planners with the same custom functions."""

from typing import Any

from fastplan.torchrec.read.custom import install

from .compare import assert_same, outcome
from .small import assert_engine
from .subject import FastPlanner, TorchRecPlanner


class TorchRecWithFunctions(TorchRecPlanner):
    """TorchRec's planner, given the functions as parts of its own kinds."""

    def __init__(self, *, shard_cost: Any = None, objective: Any = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        install(self, shard_cost, objective)


def assert_agree(build: Any, *engines: str) -> Any:
    """The two do the same; returns fastplan's planner, whose engine is one of those named."""
    expected, _ = outcome(TorchRecWithFunctions, build())
    actual, planner = outcome(FastPlanner, build())
    assert_same(expected, actual)
    # Both use fastplan's parts, so both would fail in the same way.
    failed = actual["error"] and actual["error"]["class"]
    assert failed not in ("builtins.AttributeError", "builtins.TypeError"), actual["error"]
    assert_engine(planner, *engines)
    return planner
