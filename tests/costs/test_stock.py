"""The stock cost written in Python and compiled is the core's own, to the bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torchrec.distributed.planner.types import PlannerError

from fastplan.costs.stock import stock_cost
from fastplan.engine.problem import SPACE_COLUMNS, Problem, SearchSpace
from fastplan.engine.solve import estimate, solve
from fastplan.model.request import Pricing
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.components import Parts
from fastplan.torchrec.read.modules import cached_sharders
from tests.parity.compare import quiet
from tests.parity.instances import make_instance
from tests.parity.subject import FastPlanner

MODELS = 100
# Prime, so that the models of all families are among them in turn.
FIRST_SEED = 10_007


def request_of(seed: int) -> tuple[Any, Any, Any] | None:
    """Request, cluster and search of a random model; None where Python must take part."""
    built = make_instance(seed).build()
    planner = FastPlanner(**built.planner_kwargs)
    try:
        space = drafted(planner, built.module, built.sharders)
        reserved = reserve(planner, built.module, built.sharders, cached_sharders(built.sharders))
        cluster = read_cluster(reserved)
        parts = Parts.of(planner, len(cluster.rank_hbm))
        estimate(space.request)
    except (NotNative, ArithmeticError, PlannerError):  # the last: no memory is left to plan with
        return None
    return None if parts.python else (space.request, cluster, parts.search)


def assert_same_columns(expected: SearchSpace, actual: SearchSpace) -> None:
    for name in SPACE_COLUMNS:
        left, right = getattr(expected, name), getattr(actual, name)
        assert left.tobytes() == right.tobytes(), name


@pytest.mark.parametrize("part", range(4))
def test_a_copy_of_the_stock_cost_gives_the_same_plan_to_the_bit(part: int) -> None:
    compared, seed = 0, FIRST_SEED + 1000 * part
    with quiet():
        while compared < MODELS // 4:
            seed += 1
            found = request_of(seed)
            if found is None:
                continue
            request, cluster, search = found
            pricing = Pricing(function=stock_cost, batch_size=512)
            stock, own = estimate(request), estimate(replace(request, pricing=pricing))
            assert_same_columns(stock, own)
            one, other = (solve(Problem(space, cluster), search) for space in (stock, own))
            assert (one.found, one.rating.hex()) == (other.found, other.rating.hex())
            assert np.array_equal(one.options, other.options)
            assert np.array_equal(one.ranks, other.ranks)
            compared += 1
