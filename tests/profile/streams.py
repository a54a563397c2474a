"""Streams of ids to profile, and exact answers: an LRU cache, and windows that are counted."""

from collections import OrderedDict
from functools import cache

import numpy as np


@cache
def zipf_shares(exponent, rows):
    return np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)


def zipf(random, exponent, rows, count):
    """Ranks with frequency ~ rank^-exponent."""
    shares = zipf_shares(exponent, rows)
    return np.searchsorted(shares, random.random(count) * shares[-1])


def uniform(count=400_000, rows=100_000):
    return np.random.default_rng(1).integers(0, rows, count)


def skewed(count=400_000, rows=1_000_000):
    return zipf(np.random.default_rng(2), 1.05, rows, count) * 7919


def drifting(count=400_000, rows=200_000):
    """The most frequent ids move by one row in a hundred ids."""
    found = zipf(np.random.default_rng(3), 1.2, rows, count)
    return (found + np.arange(count) // 100) % rows


def mixed(count=400_000):
    """Bags that repeat their ids, hot ones, and ids that occur once."""
    random = np.random.default_rng(4)
    parts = [zipf(random, 1.1, 5_000, count), 10_000 + random.integers(0, 50_000, count)]
    parts.append(1_000_000 + np.arange(count))
    found = np.choose(random.choice(3, count, p=[0.5, 0.4, 0.1]), parts)
    again = random.random(count) < 0.1  # an id of the same bag
    found[1:][again[1:]] = found[:-1][again[1:]]
    return found


STREAMS = {"uniform": uniform, "skewed": skewed, "drifting": drifting, "mixed": mixed}


def lru_misses(ids, rows):
    """The share of ids that an LRU cache of so many rows misses."""
    cache, misses = OrderedDict(), 0
    for each in ids.tolist():
        if each in cache:
            cache.move_to_end(each)
            continue
        misses += 1
        cache[each] = None
        if len(cache) > rows:
            cache.popitem(last=False)
    return misses / len(ids)


def distinct_in_windows(ids, size, starts):
    """Distinct ids in windows of one size, on average."""
    return np.mean([len(np.unique(ids[start : start + size])) for start in starts])
