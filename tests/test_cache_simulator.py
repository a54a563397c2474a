"""The simulator of bench/offload.py, against a cache of Python's own."""

from collections import OrderedDict

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.cache_simulator import Shard, Stream, host_bytes, miss_curve


def replayed(ids, per_step, first, rows, capacity, skip):
    """Misses, evictions and distinct ids after `skip` steps."""
    cache, counts = OrderedDict(), [0, 0, 0]
    for step in range(len(ids) // per_step):
        own = ids[step * per_step : (step + 1) * per_step].tolist()
        for row in dict.fromkeys(own):
            if not first <= row < first + rows:
                continue
            found = [0, 0, 1]
            if row in cache:
                cache.move_to_end(row)
            else:
                found[0] = 1
                if capacity:
                    cache[row] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
                    found[1] = 1
            if step >= skip:
                counts = [a + b for a, b in zip(counts, found, strict=True)]
    return counts


def stream(seed):
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.zipf(1.3, 40 * 50), 300).astype(np.int32) - 1
    return Stream(ids=ids, per_step=50, rows=300, train=20)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_are_those_of_fetched_and_written_rows(seed):
    own = stream(seed)
    for first, rows, cached in ((0, 300, 30), (100, 60, 5), (0, 300, 300), (0, 150, 0)):
        shard = Shard(
            kernel="fused_uvm_caching", first=first, rows=rows, row_bytes=64.0, cache_rows=cached
        )
        misses, evictions, distinct = replayed(own.ids, 50, first, rows, cached, 20)
        expected = ((misses + evictions) * 64 + 2 * distinct * 4) / 20
        assert host_bytes(own, shard, 4.0) == pytest.approx(expected)


def test_a_table_without_a_cache_is_read_twice_and_written_once():
    own = stream(0)
    shard = Shard(kernel="fused_uvm", first=0, rows=300, row_bytes=64.0, cache_rows=0)
    distinct = replayed(own.ids, 50, 0, 300, 0, 20)[2]
    assert host_bytes(own, shard, 0.0) == pytest.approx(3 * distinct * 64 / 20)
    on_device = Shard(kernel="fused", first=0, rows=300, row_bytes=64.0, cache_rows=0)
    assert host_bytes(own, on_device, 4.0) == 0


def test_the_curve_counts_the_second_half_of_the_training_part():
    own = stream(1)
    misses, distinct = miss_curve(own, np.array([10, 100]))
    train = own.ids[: 20 * 50]
    expected = [replayed(train, 50, 0, 300, size, 10) for size in (10, 100)]
    assert misses.tolist() == [each[0] / 10 for each in expected]
    assert distinct == expected[0][2] / 10
