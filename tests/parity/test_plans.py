"""fastplan's planner returns what TorchRec's planner returns, on random instances."""

import pytest

from .compare import assert_same, outcome
from .instances import FAMILIES, Instance, make_instance
from .small import assert_engine
from .subject import TORCHREC_VERSION, FastPlanner, TorchRecPlanner

ROUNDS = 13 if TORCHREC_VERSION < (1, 9) else 4
# TorchRec takes 2 to 10 s for each of these, together as long as for all others.
LONG = {31, 72, 89, 96, 105, 108, 110, 119, 126, 128, 129, 132, 157, 225, 241, 259, 262, 263, 278}
LONG |= {303, 330, 334, 354}
# More rounds draw more of the same families: `make test-long` runs those.
LONG |= {*range(5 * len(FAMILIES), ROUNDS * len(FAMILIES))}
INSTANCES = [
    pytest.param(make_instance(seed), marks=[pytest.mark.long] if seed in LONG else [])
    for seed in range(ROUNDS * len(FAMILIES))
]


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
    if built.stock and not refused:
        assert_engine(planner, "native")
