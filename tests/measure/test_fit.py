"""Robust fits of time over bytes."""

import numpy as np
import pytest

from fastplan.measure.statistics import Fit, fit, proportional, theil_sen

SIZES = np.array([2.0**i for i in range(12, 25)])


def times(bandwidth=1e9, latency=0.0, noise=0.0, sizes=SIZES, seed=1):
    random = np.random.default_rng(seed)
    return (latency + sizes / bandwidth) * np.exp(noise * random.standard_normal(len(sizes)))


def test_exact_data_give_the_constants_back():
    found = fit(SIZES, times(3e9))
    assert found.bandwidth == pytest.approx(3e9)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.problem is None


def test_a_latency_is_told_apart_from_the_bandwidth():
    sizes = np.geomspace(1e6, 3e7, 12)
    found = fit(sizes, times(2e9, latency=1e-3, sizes=sizes))
    assert found.latency == pytest.approx(1e-3, rel=1e-3)
    assert 1 / found.slope == pytest.approx(2e9, rel=1e-3)
    assert found.error_with_latency < 1e-6 < found.error
    assert found.problem is None


def test_a_few_outliers_hardly_matter():
    seconds = times(1e9, noise=0.02)
    seconds[[2, 7, 11]] *= 20
    found = fit(SIZES, seconds)
    assert found.bandwidth == pytest.approx(1e9, rel=0.1)
    assert 1 / found.slope == pytest.approx(1e9, rel=0.1)


def test_the_interval_holds_the_truth():
    sizes = np.repeat(SIZES, 4)
    found = fit(sizes, times(1e9, noise=0.1, sizes=sizes))
    assert found.low < 1e9 < found.high
    assert found.low < found.bandwidth < found.high


def test_latency_alone_determines_no_bandwidth():
    found = fit(SIZES, times(1e15, latency=1e-3, noise=0.1))
    assert isinstance(found, Fit)
    assert found.problem is not None


def test_noise_alone_determines_no_bandwidth():
    random = np.random.default_rng(2)
    found = fit(SIZES, random.uniform(1e-3, 1e-2, len(SIZES)))
    assert found.problem is not None


def test_few_points_and_narrow_sizes_are_refused():
    assert "too few" in fit(SIZES[:5], times(sizes=SIZES[:5]))
    sizes = np.linspace(1e6, 2e6, 10)
    assert "span a factor of 2" in fit(sizes, times(sizes=sizes))


def test_proportional_has_the_least_sum_of_factors():
    seconds = times(1e9, latency=1e-4, noise=0.3)
    best = proportional(SIZES, seconds)

    def errors(slope):
        return np.abs(np.log(seconds / (slope * SIZES))).sum()

    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert errors(best) <= errors(best * factor) + 1e-12


def test_equal_sizes_don_t_disturb_the_slope():
    sizes = np.repeat([1e6, 2e6, 4e6], 3)
    latency, slope = theil_sen(sizes, 1e-3 + sizes / 1e9)
    assert (latency, slope) == (pytest.approx(1e-3), pytest.approx(1e-9))
