"""Curves between their points, and what id statistics say of a batch and a cache."""

import math

import pytest

from fastplan.model.ids import Curve, IdStatistics


def test_a_curve_is_linear_in_the_logarithm():
    curve = Curve.of([(1.0, 0.0), (100.0, 1.0)])
    assert curve.at(10.0) == pytest.approx(0.5)
    assert (curve.at(0.5), curve.at(1000.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((), ()),
        ((1.0,), (0.0, 1.0)),
        ((0.0,), (1.0,)),
        ((2.0, 2.0), (0.0, 0.0)),
        ((1.0,), (math.inf,)),
    ],
)
def test_points_that_are_no_curve_are_refused(x, y):
    with pytest.raises(ValueError, match="must"):
        Curve(x, y)


def statistics(**changes):
    fields = {
        "ids": 200,
        "samples": 100,
        "unique": Curve.of([(1.0, 1.0), (100.0, 0.5)]),
        "misses": Curve.of([(10.0, 0.8), (1000.0, 0.1)]),
    }
    return IdStatistics(**{**fields, **changes})


def test_distinct_and_missed_ids_follow_the_curves():
    ids = statistics()
    assert ids.pooling == 2.0
    assert ids.distinct(100.0) == pytest.approx(50.0)
    assert ids.missed(100.0, 1000.0) == pytest.approx(10.0)


def test_no_more_ids_are_missed_than_are_distinct():
    ids = statistics()
    assert ids.missed(100.0, 10.0) == pytest.approx(50.0)
    assert ids.missed(100.0, 0.0) == pytest.approx(50.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"ids": 0},
        {"samples": 0},
        {"unique": Curve.of([(1.0, 1.5)])},
        {"misses": Curve.of([(1.0, -0.1)])},
        {"hottest": Curve.of([(1.0, 1.1)])},
        {"pooling_quantiles": Curve.of([(2.0, 1.0)])},
        {"pooling_quantiles": Curve.of([(1.0, -1.0)])},
        {"zipf": math.nan},
        {"zipf_error": -0.1},
        {"followed": 1.5},
    ],
)
def test_statistics_that_can_not_be_are_refused(changes):
    with pytest.raises(ValueError, match="must"):
        statistics(**changes)
