"""Bounds are true, and a certificate that was made up proves nothing."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.certificate import ROUNDING
from fastplan.engine.optimize import (
    Certificate,
    NoBound,
    Optimize,
    Slab,
    check_bound,
    lower_bound,
    optimize,
)
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from tests.plans.samples import cluster_of
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, small_problem, table


def criteo_like():
    """Few tables per rank, one far dearer than the rest: averages say little here."""
    tables = [table(f"t{i}", 50_000, 64, pooling=p) for i, p in enumerate((90, 40, 30, 9, 8, 7, 6))]
    return Problem(estimate(request(tables, 8, 4, ALL_TYPES)), small_problem().cluster)


PROBLEM = criteo_like()
PLAN = optimize(PROBLEM, DEFAULT_SEARCH, Optimize(time_budget=None, move_budget=200_000))
AVERAGES = lower_bound(PROBLEM, upper=PLAN.rating, knapsacks=0)
PACKING = lower_bound(PROBLEM, upper=PLAN.rating)


def test_both_bounds_are_below_the_plan_and_proven():
    assert isinstance(AVERAGES, Certificate)
    assert isinstance(PACKING, Certificate)
    assert 0 < AVERAGES.value < PACKING.value <= PLAN.rating
    assert any(slab.reward is not None for slab in PACKING.slabs)
    for certificate in (AVERAGES, PACKING):
        assert check_bound(PROBLEM, certificate) == certificate.value


def test_the_optimizer_returns_the_proof_of_its_bound():
    assert check_bound(PROBLEM, PLAN.certificate) == PLAN.lower_bound
    assert PLAN.lower_bound >= AVERAGES.value * (1 - 1e-6)


def test_no_plan_at_hand_still_gives_a_bound():
    alone = lower_bound(PROBLEM)
    assert isinstance(alone, Certificate)
    assert check_bound(PROBLEM, alone) == alone.value
    assert AVERAGES.value * 0.99 < alone.value <= PLAN.rating


def test_a_bound_comes_again():
    again = lower_bound(PROBLEM, upper=PLAN.rating)
    assert again.value == PACKING.value
    assert [slab.low for slab in again.slabs] == [slab.low for slab in PACKING.slabs]


@pytest.mark.parametrize("certificate", [AVERAGES, PACKING], ids=["averages", "packing"])
@pytest.mark.parametrize("factor", [1.00001, 1.1, 10.0])
def test_more_than_a_plan_costs_is_not_believed(certificate, factor):
    higher = PLAN.rating * factor
    claimed = replace(certificate, value=higher, threshold=higher)
    assert check_bound(PROBLEM, claimed) < higher
    assert check_bound(PROBLEM, replace(certificate, value=higher)) <= certificate.threshold


@pytest.mark.parametrize("certificate", [AVERAGES, PACKING], ids=["averages", "packing"])
def test_a_slab_that_is_missing_is_noticed(certificate):
    slabs = certificate.slabs
    assert len(slabs) > 2
    for i in range(len(slabs)):
        fewer = replace(certificate, slabs=slabs[:i] + slabs[i + 1 :])
        assert check_bound(PROBLEM, fewer) == 0


def test_slabs_in_another_order_prove_the_same():
    turned = replace(PACKING, slabs=PACKING.slabs[::-1])
    assert check_bound(PROBLEM, turned) == PACKING.value


def test_multipliers_of_another_problem_prove_less():
    cheaper = PROBLEM.space.run_fwd_compute * 0.5
    other = Problem(replace(PROBLEM.space, run_fwd_compute=cheaper), PROBLEM.cluster)
    assert check_bound(other, AVERAGES) < AVERAGES.value
    assert check_bound(other, PACKING) < PACKING.value


def test_random_multipliers_never_prove_more_than_a_plan_costs():
    rng = np.random.default_rng(0)
    for _ in range(200):
        threshold = PLAN.rating * rng.uniform(0.5, 2)
        reward = rng.exponential(1.0, PROBLEM.space.options) if rng.random() < 0.5 else None
        certificate = Certificate(
            value=math.inf,
            threshold=threshold,
            slabs=(
                replace(
                    PACKING.slabs[0],
                    low=0.0,
                    high=math.inf,
                    memory=tuple(rng.exponential(1e-9, 3)),
                    uniform=rng.normal(),
                    reward=reward,
                ),
            ),
        )
        assert check_bound(PROBLEM, certificate) <= PLAN.rating


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"memory": (-1e-9, 0.0, 0.0)}, "memory"),
        ({"memory": (math.nan, 0.0, 0.0)}, "memory"),
        ({"uniform": math.inf}, "uniform"),
        ({"high": math.nan}, "memory"),
        ({"reward": np.ones(3)}, "reward"),
        ({"reward": np.full(PROBLEM.space.options, -1.0)}, "reward"),
        ({"reward": np.full(PROBLEM.space.options, math.nan)}, "reward"),
    ],
)
def test_numbers_that_are_no_multipliers_are_refused(changes, name):
    broken = (replace(AVERAGES.slabs[0], **changes), *AVERAGES.slabs[1:])
    with pytest.raises(ValueError, match=name):
        check_bound(PROBLEM, replace(AVERAGES, slabs=broken))


def test_an_empty_certificate_or_an_infinite_threshold_proves_nothing():
    assert check_bound(PROBLEM, Certificate(value=1.0, threshold=1.0, slabs=())) == 0
    assert check_bound(PROBLEM, replace(AVERAGES, threshold=math.inf, value=math.inf)) == 0


def made_up(*, threshold=1e9, **multipliers):
    """A bound of a million seconds, by one slab for all plans."""
    whole = {"low": 0.0, "high": math.inf, "memory": (0.0,) * 3, "uniform": 0.0, "reward": None}
    return Certificate(value=1e9, threshold=threshold, slabs=(Slab(**{**whole, **multipliers}),))


@pytest.mark.parametrize(
    "certificate",
    [
        Certificate(value=1e9, threshold=0.0, slabs=()),
        Certificate(value=1e9, threshold=-1.0, slabs=()),
        Certificate(value=1e9, threshold=math.nan, slabs=AVERAGES.slabs),
        replace(AVERAGES, value=math.nan),
        made_up(memory=(1e308, 0.0, 0.0)),
        made_up(memory=(1e308, 0.0, 0.0), uniform=-1e308),
        made_up(uniform=1e308),
        made_up(uniform=-1e308, low=-1e308),
        made_up(reward=np.full(PROBLEM.space.options, 1e308)),
    ],
)
def test_invented_numbers_prove_nothing(certificate):
    assert check_bound(PROBLEM, certificate) == 0


def test_numbers_too_small_to_have_digits_prove_nothing():
    tables = [table(f"t{i}", 50_000, 64, pooling=9) for i in range(9)]
    space = estimate(request(tables, 8, 4, ("row_wise",)))
    problem = Problem(space, small_problem().cluster)
    rating = solve(problem, DEFAULT_SEARCH).rating
    # Half of the smallest number there is becomes all of it, for each table by itself.
    uniform = 5e-324 * math.ceil(0.5 / (rating / len(tables)))
    forged = made_up(threshold=rating * 1.01, uniform=uniform, reward=np.zeros(space.options))
    assert check_bound(problem, forged) <= rating


def test_a_slab_without_room_is_checked_like_others():
    space = replace(PROBLEM.space, run_fwd_compute=PROBLEM.space.run_fwd_compute * 0)
    for name in ("run_bwd_compute", "run_fwd_comms", "run_bwd_comms", "run_prefetch_compute"):
        space = replace(space, **{name: getattr(space, name) * 0})
    full = made_up(threshold=1.0, low=0.0, high=2.0, reward=np.ones(space.options))
    last = replace(full.slabs[0], low=1.0 * (1 + ROUNDING), high=math.inf)
    forged = replace(full, slabs=(*full.slabs, last))
    assert check_bound(Problem(space, PROBLEM.cluster), forged) == 0


def test_no_bound_is_offered_where_there_is_no_plan():
    cluster = replace(PROBLEM.cluster, rank_hbm=(1000,) * 8, rank_ddr=(1000,) * 8)
    none = lower_bound(Problem(PROBLEM.space, cluster))
    assert isinstance(none, NoBound)
    assert "no plan" in none.reason


def test_uneven_ranks_towers_and_grids_have_bounds():
    tables = [
        table(f"t{i}", 30_000, 128, pooling=3.0 + i)._replace(min_partition=32) for i in range(5)
    ]
    towers = [made._replace(tower="a") for made in tables]
    rooms = tuple((1 << 28) + (i << 24) for i in range(8))
    cluster = replace(small_problem().cluster, rank_hbm=rooms)
    kinds = {"grid_shard": tables, "table_row_wise": towers, "table_column_wise": towers}
    for kind, own in kinds.items():
        problem = Problem(estimate(request(own, 8, 4, (kind,))), cluster)
        settings = Optimize(time_budget=None, move_budget=5_000)
        found = optimize(problem, DEFAULT_SEARCH, settings)
        assert 0 < found.lower_bound <= found.rating, kind
        assert check_bound(problem, found.certificate) == found.lower_bound, kind


def scarce_memory(seed):
    """Tables of two options each, of which the slower one saves hardly any of the memory.

    So a byte is worth much: all memory together up to some thousand times the rating.
    """
    rng = random.Random(seed)
    ranks, count = rng.choice((2, 4, 8)), rng.choice((16, 24, 40))
    tables = [table(f"t{i}", 1_000, 64) for i in range(count)]
    space = estimate(request(tables, ranks, ranks, ("table_wise",)))
    size = 10 ** rng.randint(6, 9)
    hbm = np.array([[size + rng.randrange(10_000, 20_000), size] for _ in tables])
    fast = np.array([rng.uniform(1, 2) for _ in tables])
    cost = np.stack([fast, fast * (1 + np.array([rng.random() for _ in tables]))], axis=1)
    nothing = np.zeros(2 * count)
    columns = dict.fromkeys(("bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute"), nothing)
    columns |= dict.fromkeys(("ddr", "ssd"), nothing.astype(np.int64))
    columns |= {"hbm": hbm.ravel(), "fwd_compute": cost.ravel()}
    space = replace(space, **{f"run_{name}": column for name, column in columns.items()})
    half = int(hbm.sum()) // 2 // ranks  # every other table must be slow
    cluster = replace(cluster_of(ranks, ranks), rank_hbm=(half,) * ranks)
    return Problem(space, cluster)


def test_bounds_are_proven_in_full_where_memory_is_scarce():
    scarce = 0
    for seed in range(40):
        problem = scarce_memory(seed)
        first = lower_bound(problem, upper=1_000.0, knapsacks=0)
        found = lower_bound(problem, upper=1.01 * first.value, knapsacks=0)
        for bound in (first, found):
            assert check_bound(problem, bound) == bound.value, seed
        memory = sum(problem.cluster.rank_hbm)
        scarce += max(slab.memory[0] for slab in found.slabs) * memory > 200 * found.value
    assert scarce >= 10
