"""The simulator of bench/offload.py, against a cache of Python's own."""

from collections import OrderedDict

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.cache_simulator import Shard, Stream, host_bytes, miss_curve
from bench.id_streams import draw_stream


def replayed(own, first, rows, capacity, steps):
    """Misses, evictions and ids in some steps, of all that the stream has before their end."""
    cache, counts = OrderedDict(), [0, 0, 0]
    for step in range(steps.stop):
        for row in own.ids[own.begin[step] : own.begin[step + 1]].tolist():
            if not first <= row < first + rows:
                continue
            found = [0, 0, 1]
            if row in cache:
                cache.move_to_end(row)
            else:
                found[0] = 1
                cache[row] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
                    found[1] = 1
            if step in steps:
                counts = [a + b for a, b in zip(counts, found, strict=True)]
    return counts


def stream(seed):
    rng = np.random.default_rng(seed)
    steps = [np.unique(np.minimum(rng.zipf(1.3, 50), 300)).astype(np.int32) - 1 for _ in range(40)]
    return Stream(
        ids=np.concatenate(steps),
        begin=np.cumsum([0, *map(len, steps)]),
        per_step=50,
        rows=300,
        followed=300,
        warm=10,
        train=20,
    )


@pytest.mark.parametrize("seed", range(5))
def test_bytes_are_those_of_fetched_and_written_rows(seed):
    own = stream(seed)
    for first, rows, cached in ((0, 300, 30), (100, 60, 5), (0, 300, 300), (0, 150, 0)):
        shard = Shard(
            kernel="fused_uvm_caching", first=first, rows=rows, row_bytes=64.0, cache_rows=cached
        )
        misses, evictions, distinct = replayed(own, first, rows, cached, range(20, 40))
        expected = ((misses + evictions) * 64 + 2 * distinct * 4) / 20
        assert host_bytes(own, shard, 4.0) == pytest.approx(expected)


def test_a_table_without_a_cache_is_read_twice_and_written_once():
    own = stream(0)
    shard = Shard(kernel="fused_uvm", first=0, rows=300, row_bytes=64.0, cache_rows=0)
    distinct = replayed(own, 0, 300, 0, range(20, 40))[2]
    assert host_bytes(own, shard, 0.0) == pytest.approx(3 * distinct * 64 / 20)
    on_device = Shard(kernel="fused", first=0, rows=300, row_bytes=64.0, cache_rows=0)
    assert host_bytes(own, on_device, 4.0) == 0


def test_the_curve_counts_the_training_part_after_its_history():
    own = stream(1)
    misses, distinct = miss_curve(own, np.array([10, 100, 300]))
    expected = [replayed(own, 0, 300, size, range(10, 20)) for size in (10, 100, 300)]
    assert misses.tolist() == [each[0] / 10 for each in expected]
    assert distinct == expected[0][2] / 10


def test_a_sample_of_the_rows_has_the_bytes_of_all():
    rows, ids = 60_000, 30_000
    for exponent, spread, drift in ((0.8, 0.2, 0), (1.2, 0.0, 10)):
        whole, sample = (
            draw_stream(
                np.random.default_rng(7),
                rows,
                ids,
                exponent=exponent,
                spread=spread,
                drift=drift,
                followed=followed,
            )
            for followed in (rows, 6_000)
        )
        for cached in (3_000, 20_000):
            shard = Shard(
                kernel="fused_uvm_caching", first=0, rows=rows, row_bytes=64.0, cache_rows=cached
            )
            both = [host_bytes(each, shard, 4.0) for each in (whole, sample)]
            assert both[1] == pytest.approx(both[0], rel=0.05)
