"""The examples compute what they say, and both planners make the same plan with them."""

import numpy as np
import pytest
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer

from fastplan.costs import examples
from fastplan.costs.functions import ShardCost
from fastplan.costs.names import Kernel
from fastplan.engine import _native
from fastplan.engine.solve import estimate
from tests.parity.functions import assert_agree
from tests.parity.small import MIB, small, small_constraints, small_topology

from . import samples

SIZES, MILLISECONDS = [1e3, 1e5, 1e6], [0.01, 0.02, 0.2]


def every_example():
    return {
        "measured": examples.measured_lookup(SIZES, MILLISECONDS),
        "cached": examples.cache_aware_lookup(40 * MIB, 3.0),
        "straggler": examples.straggler(1, 1.5),
        "energy": examples.energy(700.0, 400.0, 100.0),
        "critical": examples.critical_path(),
    }


@pytest.mark.parametrize("name", every_example())
def test_both_planners_make_the_same_plan(name):
    function = every_example()[name]
    argument = "shard_cost" if isinstance(function, ShardCost) else "objective"

    def build():
        return small(
            count=3,
            topology=small_topology(hbm=64 * MIB),
            constraints=small_constraints(),
            proposer=[UniformProposer(), GreedyProposer(threshold=20)],
            **{argument: function},
        )

    assert_agree(build, "native")


def test_lookups_take_what_was_measured():
    made = samples.priced(examples.measured_lookup(SIZES, MILLISECONDS))
    space = estimate(made)
    # Table-wise and row-wise, on the device and from the cache, of two tables.
    assert space.option_kernel.tolist()[:4] == [Kernel.FUSED, Kernel.FUSED_UVM_CACHING] * 2
    world, batch, dim = 4, 512, 64
    sizes = {0: 3.0 * batch * world * dim * 4, 2: 3.0 * batch * dim * 4}
    slope = (0.2 - 0.02) / (1e6 - 1e5)
    expected = {0: 0.2 + (sizes[0] - 1e6) * slope, 2: np.interp(sizes[2], SIZES, MILLISECONDS)}
    runs = space.option_run_begin
    for option, milliseconds in expected.items():
        assert space.run_fwd_compute[runs[option]] == pytest.approx(milliseconds, rel=1e-12)
    stock = estimate(samples.priced(samples.uvm_is_slower))
    assert space.run_bwd_compute[0] == pytest.approx(2 * space.run_fwd_compute[0], rel=1e-12)
    assert space.run_bwd_compute[1] == stock.run_bwd_compute[1]


def test_a_cache_speeds_up_what_it_holds():
    from dataclasses import replace

    stock = estimate(replace(samples.priced(samples.uvm_is_slower), pricing=None))
    for size, speedup in ((1e12, 4.0), (70 * 32 * 4, 4.0), (0, 1.0)):
        space = estimate(samples.priced(examples.cache_aware_lookup(size, 4.0)))
        small_table = int(space.table_option_begin[1])
        run = space.option_run_begin[small_table]
        assert stock.run_fwd_compute[run] == speedup * space.run_fwd_compute[run]
    half = estimate(samples.priced(examples.cache_aware_lookup(70 * 32 * 2, 4.0)))
    assert half.run_fwd_compute[run] == pytest.approx(stock.run_fwd_compute[run] * 0.625)


def rank_records():
    ranks = np.zeros(3, _native.RANK_DTYPE)
    ranks["fwd_compute"], ranks["bwd_compute"] = [1, 2, 3], [2, 4, 6]
    ranks["fwd_comms"], ranks["bwd_comms"] = [5, 3, 0], [1, 1, 1]
    ranks["total"] = [9, 10, 10]
    return ranks


@pytest.mark.parametrize(
    ("objective", "rating"),
    [
        (examples.critical_path(), 9 + 6),
        (examples.straggler(0, 3.0), 9 + 2 * 3),
        (examples.straggler(0, 1.0), 10),
        (examples.straggler(7, 100.0), 10),
        (examples.energy(10.0, 1.0, 0.5), 10 * 18 + 11 + 0.5),
    ],
    ids=["critical path", "straggler", "no straggler", "straggler elsewhere", "energy"],
)
def test_objectives_rate_by_their_formulas(objective, rating):
    assert objective.rate(rank_records()) == rating


@pytest.mark.parametrize(
    "make",
    [
        lambda: examples.measured_lookup([1.0], [1.0]),
        lambda: examples.measured_lookup([2.0, 1.0], [1.0, 2.0]),
        lambda: examples.measured_lookup([1.0, 2.0], [2.0, 1.0]),
        lambda: examples.cache_aware_lookup(1e6, 0.5),
        lambda: examples.straggler(-1, 2.0),
        lambda: examples.energy(1.0, -1.0, 1.0),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_other_measurements_have_another_fingerprint():
    one, same = (examples.measured_lookup(SIZES, MILLISECONDS) for _ in range(2))
    other = examples.measured_lookup(SIZES, [0.01, 0.02, 0.3])
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
