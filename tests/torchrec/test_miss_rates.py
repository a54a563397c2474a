"""Miss rates and copies of cache statistics are those of TorchRec's own code."""

import copy
import random
from itertools import chain

import pytest
import torch
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.types import CacheParams

from fastplan.torchrec import compat
from fastplan.torchrec.read.miss_rates import MissRates

HEIGHTS = (1, 2, 7, 100, 12_345, 50_000_001)


def statistics(counts, height=100, dtype=torch.float32):
    histogram = counts if isinstance(counts, torch.Tensor) else torch.tensor(counts, dtype=dtype)
    return EmbeddingOffloadStats(
        cacheability=0.5, expected_lookups=3, mrc_hist_counts=histogram, height=height
    )


def factors(height, bins):
    """Load factors in bins, at their borders, and just beside them."""
    borders = [bin_ / bins for bin_ in range(bins + 1)]
    rows = [(bin_ * height / bins + 1) / height for bin_ in range(bins + 1)]
    beside = [factor * (1 + tiny) for factor in rows for tiny in (-1e-7, 1e-7)]
    return chain(borders, rows, beside, (1e-9, 0.3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("height", HEIGHTS)
def test_miss_rates_are_those_of_torchrec(height, dtype):
    generator = random.Random(height)
    for bins in (1, 2, 5, 50):
        counts = [generator.choice((0, 1, generator.random() * 100)) for _ in range(bins)]
        own, rates = statistics(counts, height, dtype), MissRates()
        for factor in factors(height, bins):
            assert rates.of(own, factor) == own.expected_miss_rate(factor)


def test_a_histogram_is_summed_up_once(monkeypatch):
    own, rates = statistics([3.0, 2.0, 1.0]), MissRates()
    expected = [own.expected_miss_rate(factor) for factor in (0.1, 0.5, 0.9)]

    def refused(*args, **kwargs):
        raise AssertionError("TorchRec's method was called")

    monkeypatch.setattr(EmbeddingOffloadStats, "estimate_cache_miss_rate", staticmethod(refused))
    # Replaced functions are found before a search; a run does not look again.
    monkeypatch.setattr(compat, "why_not_stock", lambda *args: "")
    assert [rates.of(own, factor) for factor in (0.1, 0.5, 0.9)] == expected


class Own(EmbeddingOffloadStats):
    def expected_miss_rate(self, clf):
        return 0.125


def test_statistics_of_another_class_are_asked():
    own = Own(cacheability=0.5, expected_lookups=3, mrc_hist_counts=torch.ones(2), height=10)
    assert MissRates().of(own, 0.5) == 0.125


def test_statistics_with_a_method_of_their_own_are_asked():
    own = statistics([1.0, 1.0])
    own.expected_miss_rate = lambda factor: 0.25
    assert MissRates().of(own, 0.5) == 0.25


def test_an_empty_histogram_never_misses():
    assert MissRates().of(statistics([0.0, 0.0]), 0.5) == 0.0


@pytest.mark.parametrize(
    "counts",
    [torch.ones(3), torch.arange(3), torch.ones(6)[::2], torch.ones(6)[:3], torch.ones(3).t()],
)
def test_copied_statistics_are_deep_copies(counts):
    params = CacheParams(load_factor=0.5, stats=statistics(counts))
    copied, expected = compat.copy_params(params), copy.deepcopy(params)
    assert type(copied.stats) is EmbeddingOffloadStats
    assert vars(copied).keys() == vars(expected).keys()
    assert vars(copied.stats).keys() == vars(expected.stats).keys()
    for name, value in vars(copied.stats).items():
        same = vars(expected.stats)[name]
        if not isinstance(value, torch.Tensor):
            assert value == same
            continue
        assert torch.equal(value, same)
        assert value.dtype == same.dtype
        assert value.stride() == same.stride()
        assert value.untyped_storage().nbytes() == same.untyped_storage().nbytes()
        assert value.data_ptr() != vars(params.stats)[name].data_ptr()


def test_tensors_that_share_memory_still_do_in_a_copy():
    own = statistics(torch.ones(3))
    own.bins = own.hist
    copied = compat.copy_params(CacheParams(load_factor=0.5, stats=own))
    assert copied.stats.bins is copied.stats.hist
