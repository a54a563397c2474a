"""Whether two plans differ: told by rounds in which both had a turn."""

from itertools import product

import numpy as np
import pytest

from fastplan.measure.paired import ALPHA, FEWEST_ROUNDS, VISIBLE, compare_rounds, signed_rank_p

SERIES = 100


def bursts(random, rounds, steps=5):
    """Factors of a busy machine: for a third of the time, work of others slows it 1.5 to 5 times.

    Bursts begin and end anywhere. Returns one row for each turn of two plans in a drawn order.
    """
    slots = 2 * rounds * steps
    busy = np.ones(slots)
    at = 0
    while at < slots:
        at += int(random.exponential(16))
        length = 1 + int(random.exponential(8))
        busy[at : at + length] *= random.uniform(1.5, 5)
        at += length
    busy *= np.exp(0.05 * random.standard_normal(slots))
    turns = busy.reshape(rounds, 2, steps)
    order = np.array([random.permutation(2) for _ in range(rounds)])
    return np.take_along_axis(turns, order[:, :, None], axis=1)


def test_equal_plans_on_a_busy_machine_are_hardly_ever_called_different():
    outcomes = []
    for seed in range(SERIES):
        turns = bursts(np.random.default_rng(seed), rounds=10)
        outcomes.append(compare_rounds(list(turns[:, 0]), list(turns[:, 1])))
    assert sum(found.different for found in outcomes) <= 5
    # The plain medians do differ, so the series are a real test.
    assert np.median([abs(found.difference) for found in outcomes]) > 0.01


def test_a_busy_machine_is_called_too_noisy():
    turns = bursts(np.random.default_rng(11), rounds=10)
    found = compare_rounds(list(turns[:, 0]), list(turns[:, 1]))
    assert found.outcome == "unclear"
    assert found.resolution > VISIBLE
    assert found.why_unclear.startswith("too noisy to tell: one plan changes by ")
    assert f"{100 * found.resolution:.0f} % and more" in found.why_unclear


def test_a_difference_of_ten_percent_is_found_under_moderate_noise():
    outcomes = []
    for seed in range(SERIES):
        random = np.random.default_rng(seed)
        times = np.exp(0.04 * random.standard_normal((10, 2, 5)))
        times *= np.exp(0.2 * random.standard_normal((10, 1, 1)))  # of both plans in a round
        outcomes.append(compare_rounds(list(times[:, 0]), list(1.1 * times[:, 1])))
    assert sum(found.outcome == "slower" for found in outcomes) >= 80
    assert not any(found.outcome == "faster" for found in outcomes)
    assert np.median([found.difference for found in outcomes]) == pytest.approx(0.1, abs=0.01)


def test_a_quiet_machine_tells_equal_plans_apart_from_unclear_ones():
    times = 1 + 0.01 * np.random.default_rng(1).standard_normal((10, 2, 5))
    found = compare_rounds(list(times[:, 0]), list(times[:, 1]))
    assert found.outcome == "same"
    assert found.resolution < VISIBLE


def test_the_faster_plan_is_faster_and_the_slower_one_slower():
    times = 1 + 0.01 * np.random.default_rng(1).standard_normal((10, 2, 5))
    one, other = list(times[:, 0]), list(2 * times[:, 1])
    assert compare_rounds(one, other).outcome == "slower"
    assert compare_rounds(other, one).outcome == "faster"


def test_too_few_rounds_are_unclear_however_large_the_difference():
    rounds = FEWEST_ROUNDS - 1
    found = compare_rounds([np.ones(3)] * rounds, [np.full(3, 9.0)] * rounds)
    assert found.outcome == "unclear"
    assert found.why_unclear == "7 rounds are too few, 8 are needed"
    assert compare_rounds([], []).rounds == 0


def test_rounds_that_one_plan_lacks_are_left_out():
    times = [np.array([1.0 + 0.001 * i]) for i in range(10)]
    assert compare_rounds(times, times[:8]).rounds == 8


def by_enumeration(differences):
    found = [value for value in differences if value != 0]
    size = np.abs(found)
    ranks = [np.mean(np.flatnonzero(np.sort(size) == value)) + 1 for value in size]
    total = sum(ranks)
    away = abs(sum(r for r, d in zip(ranks, found, strict=True) if d > 0) - total / 2)
    sums = [
        sum(r for r, up in zip(ranks, signs, strict=True) if up)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    return np.mean([abs(each - total / 2) >= away - 1e-9 for each in sums])


@pytest.mark.parametrize("seed", range(8))
def test_the_p_is_that_of_all_signs(seed):
    random = np.random.default_rng(seed)
    differences = random.integers(-4, 5, 9).astype(float)
    assert signed_rank_p(differences) == pytest.approx(by_enumeration(differences))


def test_the_smallest_p_is_that_of_equal_signs():
    assert signed_rank_p(np.arange(1.0, 9.0)) == pytest.approx(2 / 2**8)
    assert 2 / 2**FEWEST_ROUNDS <= ALPHA < 2 / 2 ** (FEWEST_ROUNDS - 1)
    assert signed_rank_p(np.zeros(4)) == 1
