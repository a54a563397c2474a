"""fastplan's planner returns what TorchRec's planner returns, on random instances."""

import pytest

from .compare import assert_same, outcome
from .instances import FAMILIES, Instance, make_instance
from .subject import SELF_CHECK, TORCHREC_VERSION, FastPlanner, TorchRecPlanner

ROUNDS = 12 if TORCHREC_VERSION < (1, 9) else 4
INSTANCES = [make_instance(seed) for seed in range(ROUNDS * len(FAMILIES))]


@pytest.mark.parametrize("instance", INSTANCES, ids=str)
def test_everything_visible_equals_torchrec_and_stock_parts_plan_natively(
    instance: Instance,
) -> None:
    expected, _ = outcome(TorchRecPlanner, instance.build())
    built = instance.build()
    actual, planner = outcome(FastPlanner, built)
    assert_same(expected, actual)
    # Where TorchRec's enumerator refuses the input, it has to say so itself.
    refused = expected["error"] is not None and expected["error"]["kind"] is None
    if built.stock and not refused and not SELF_CHECK:
        assert (planner.last_run.engine, planner.last_run.reason) == ("native", None)
