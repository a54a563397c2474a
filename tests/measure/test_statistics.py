"""Medians, spreads and orders."""

import itertools
import math

import numpy as np
import pytest

from fastplan.measure.statistics import MedianSpread, drift, kendall_tau, tau_interval


def test_a_center_has_the_median_and_the_quartiles_distance():
    center = MedianSpread.of([1, 2, 3, 4, 5])
    assert center == MedianSpread(3, 2, 5)


def test_tau_is_one_for_the_same_order_and_minus_one_for_the_reverse():
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1


def test_tau_counts_pairs_as_its_definition_does():
    random = np.random.default_rng(3)
    for _ in range(50):
        a, b = random.integers(0, 4, (2, 6))
        signs = [
            (np.sign(a[i] - a[j]), np.sign(b[i] - b[j]))
            for i, j in itertools.combinations(range(6), 2)
        ]
        apart = math.sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))
        expected = sum(x * y for x, y in signs) / apart if apart else math.nan
        assert kendall_tau(a, b) == pytest.approx(expected, nan_ok=True)


def test_tau_of_equal_estimates_is_no_number():
    assert math.isnan(kendall_tau([1, 1, 1], [1, 2, 3]))


def noisy(medians, noise, rounds=4):
    random = np.random.default_rng(0)
    return [[m * (1 + noise * random.standard_normal(10)) for _ in range(rounds)] for m in medians]


def test_without_noise_the_interval_is_the_value():
    found = tau_interval([1, 2, 3, 4], noisy([1, 2, 4, 8], 0.001))
    assert tuple(found) == (1, 1, 1)


def test_noise_widens_the_interval():
    found = tau_interval([1, 2, 3, 4], noisy([1, 1.01, 1.02, 1.03], 0.3))
    assert found.low < found.high
    assert found.low <= found.value <= found.high


def test_the_interval_is_the_same_every_time():
    samples = noisy([1, 1.1, 1.2], 0.3)
    assert tau_interval([1, 2, 3], samples) == tau_interval([1, 2, 3], samples)


def test_drift_is_what_hits_all_plans():
    steady = noisy([1, 2, 3], 0.001)
    assert drift(steady) < 0.01
    slower = [[rounds * (1 + 0.2 * i) for i, rounds in enumerate(plan)] for plan in steady]
    assert drift(slower) == pytest.approx(0.6, abs=0.02)
    assert drift([plan[:1] for plan in steady]) == 0
