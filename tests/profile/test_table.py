"""Statistics of streams against exact answers: an LRU cache, counted windows, counted ids."""

from functools import cache

import numpy as np
import pytest

from fastplan.profile.curves import statistics_of
from fastplan.profile.summary import ids_outside, merge
from fastplan.profile.table import LEAST_FOLLOWED, MOST_FOLLOWED, TableProfile, default_limit

from .streams import STREAMS, distinct_in_windows, lru_misses

# A seventh to a half of the distinct ids of each stream.
LIMIT = 1 << 14
CACHES = (0.001, 0.01, 0.05, 0.2, 0.6)  # of the distinct ids
WINDOWS = (100, 1000, 10_000, 100_000)


@cache
def stream(name):
    return STREAMS[name]().astype(np.int64)


def profiled(ids, limit=LIMIT, batch=50_000):
    profile = TableProfile(limit)
    for part in np.split(ids, range(batch, len(ids), batch)):
        profile.add(part, np.ones(len(part), np.int64))
    return profile


@cache
def statistics(name):
    return profiled(stream(name)).statistics()


@pytest.mark.parametrize("name", STREAMS)
def test_misses_are_within_two_points_of_an_lru_cache(name):
    ids, found = stream(name), statistics(name)
    assert found.followed < 0.6
    distinct = len(np.unique(ids))
    for part in CACHES:
        rows = int(distinct * part)
        assert found.misses.at(rows) == pytest.approx(lru_misses(ids, rows), abs=0.02), rows


@pytest.mark.parametrize("name", STREAMS)
def test_distinct_ids_are_within_three_percent(name):
    ids, found = stream(name), statistics(name)
    random = np.random.default_rng(0)
    for size in WINDOWS:
        starts = random.integers(0, len(ids) - size, 4_000_000 // size)
        exact = distinct_in_windows(ids, size, starts)
        assert found.distinct(size) == pytest.approx(exact, rel=0.03), size
    assert found.distinct(len(ids)) == pytest.approx(len(np.unique(ids)), rel=0.03)


@pytest.mark.parametrize("name", STREAMS)
def test_the_share_of_the_hottest_rows_is_within_two_points(name):
    ids, found = stream(name), statistics(name)
    counts = np.sort(np.unique(ids, return_counts=True)[1])[::-1]
    for rows in (1, 10, 100, 1000, 10_000):
        assert found.hottest.at(rows) == pytest.approx(counts[:rows].sum() / len(ids), abs=0.02)


@pytest.mark.parametrize(("name", "exponent"), [("skewed", 1.05), ("uniform", 0.07)])
def test_the_exponent_is_that_of_the_stream(name, exponent):
    assert statistics(name).zipf == pytest.approx(exponent, abs=0.05)
    assert statistics(name).zipf_error < 0.1


def test_small_streams_are_exact():
    ids = stream("mixed")[:5000]
    found = profiled(ids, MOST_FOLLOWED, 700).statistics()
    assert (found.ids, found.samples, found.followed) == (5000, 5000, 1.0)
    for rows in (1, 2, 7, 32, 1024):  # edges of bins
        assert found.misses.at(rows) == pytest.approx(lru_misses(ids, rows), abs=0.0006)
    for size in (2, 16, 128, 1024):
        exact = distinct_in_windows(ids, size, range(5000 - size + 1))
        assert found.distinct(size) == pytest.approx(exact, rel=0.003)
    assert found.distinct(5000) == pytest.approx(len(np.unique(ids)))


def test_pooling_has_a_mean_and_quantiles():
    profile = TableProfile()
    lengths = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 64])
    profile.add(np.arange(100), lengths)
    found = profile.statistics()
    assert found.pooling == 10.0
    quantiles = found.pooling_quantiles
    assert (quantiles.at(0.5), quantiles.at(0.01), quantiles.at(1.0)) == (4.0, 0.0, 64.0)


def test_one_id_has_statistics_and_none_has_not():
    profile = TableProfile()
    assert profile.statistics() is None
    profile.add([7], [1])
    found = profile.statistics()
    assert (found.ids, found.distinct(1), found.misses.at(1), found.zipf) == (1, 1.0, 1.0, None)


def test_parts_of_a_stream_add_up():
    ids = stream("mixed")
    whole = statistics("mixed")
    # The sample of the shorter part is larger.
    parts = [profiled(part).summary() for part in np.split(ids, [320_000])]
    assert parts[0].frequencies.threshold < parts[1].frequencies.threshold
    found = statistics_of(merge(parts))
    assert (found.ids, found.samples) == (whole.ids, whole.samples)
    assert found.distinct(10_000) == pytest.approx(whole.distinct(10_000), rel=0.02)
    # The same ids occur in both parts.
    assert found.distinct(len(ids)) == pytest.approx(len(np.unique(ids)), rel=0.03)
    assert found.hottest.at(100) == pytest.approx(whole.hottest.at(100), abs=0.02)
    # A cache that holds 1000 rows is as good as full after a few thousand ids.
    assert found.misses.at(1000) == pytest.approx(whole.misses.at(1000), abs=0.01)


@pytest.mark.parametrize("name", ["uniform", "drifting"])
def test_a_stored_profile_goes_on_as_if_it_had_not_ended(name):
    first, second = np.split(stream(name), [150_000])
    through = profiled(first)
    again = TableProfile(LIMIT)
    again.restore(through.columns())
    for profile in (through, again):
        profile.add(second, np.ones(len(second), np.int64))
    assert again.statistics() == through.statistics()


def test_memory_is_bounded():
    ids = np.random.default_rng(0).integers(0, 1 << 40, 300_000)
    columns = profiled(ids, 1 << 10).columns()
    assert len(columns["id"]) <= 4 << 10
    assert profiled(ids, 1 << 10).statistics().distinct(300_000) == pytest.approx(3e5, rel=0.1)


def test_many_tables_share_the_memory():
    assert default_limit(1) == MOST_FOLLOWED
    assert default_limit(100_000) == LEAST_FOLLOWED
    assert default_limit(26) * 26 <= 1 << 21


@pytest.mark.parametrize(
    ("ids", "lengths", "told"),
    [
        ([1, 2], [1], "add up to the 2 ids, not to 1"),
        ([1.5], [1], "whole numbers"),
        ([[1]], [1], "one-dimensional"),
        ([1], [2, -1], "negative"),
    ],
)
def test_batches_that_can_not_be_are_refused(ids, lengths, told):
    with pytest.raises(ValueError, match=told):
        TableProfile().add(ids, lengths)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("id", lambda ids: np.full_like(ids, 5), "twice|not in its sample"),
        ("last", lambda last: last[::-1].copy(), "order"),
        ("last", lambda last: last + np.uint64(1 << 40), "order"),
        ("count", np.zeros_like, "counts that can't be"),
        ("state", np.zeros_like, "no state"),
        ("state", lambda state: state + np.uint8(9), "no meaning"),
        ("sketch", lambda sketch: sketch[:-1].copy(), "wrong size"),
        ("counts", lambda counts: counts[:-1].copy(), "3 entries"),
        ("counts", np.zeros_like, "can't be"),
        ("weights", lambda weights: weights * np.nan, "weights"),
        ("cold_times", lambda times: times - 1, "weights"),
        ("lengths", lambda lengths: lengths + 1, "as many as"),
        ("samples", lambda samples: samples.astype(float), "whole number"),
    ],
)
def test_a_state_that_can_not_be_is_refused(name, change, told):
    columns = profiled(stream("skewed")[:50_000], 1 << 10).columns()
    columns[name] = change(columns[name])
    with pytest.raises(TypeError, match=told):
        TableProfile(1 << 10).restore(columns)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("limit", [LIMIT, MOST_FOLLOWED * 8])
def test_ids_without_a_row_are_counted(name, limit):
    ids = stream(name)
    rows = int(np.quantile(ids, 0.7))
    exact = int((ids >= rows).sum())
    summary = profiled(ids, limit).summary()
    error = 0 if summary.frequencies.rate == 1.0 else 0.05 * len(ids)
    assert ids_outside(summary, rows) == pytest.approx(exact, abs=error)
    assert ids_outside(summary, int(ids.max()) + 1) == 0
    assert ids_outside(summary, 0) == len(ids)
