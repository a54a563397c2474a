"""Which entries serve on which devices."""

from dataclasses import replace

import pytest

from fastplan.cache.entry import FORMAT, capacities_of
from fastplan.cache.plan_cache import Cache, smaller
from fastplan.cache.stores import MemoryStore
from fastplan.engine.solve import solve
from fastplan.model.plan import PlanRecord
from fastplan.model.units import format_size
from tests.problems import DEFAULT_SEARCH, small_problem

KEY = "0123456789abcdef" * 2
PROBLEM = small_problem()
CLUSTER = PROBLEM.cluster


def record():
    found = solve(PROBLEM, DEFAULT_SEARCH)
    return PlanRecord.of(PROBLEM.space, found.options, found.ranks, found.rating)


@pytest.mark.parametrize("tier", ["rank_hbm", "rank_ddr", "rank_ssd"])
@pytest.mark.parametrize(
    ("solved", "present", "serves"),
    [
        # A hundredth of the larger one, whichever that is.
        (10_000, 10_101, True),
        (10_000, 10_102, False),
        (10_101, 10_000, True),
        (10_102, 10_000, False),
        (0, 0, True),
        (0, 1, False),
    ],
)
def test_memory_may_differ_by_the_tolerance_in_either_direction(tier, solved, present, serves):
    cache = Cache(MemoryStore(), capacity_tolerance=0.01)
    then, now = (
        replace(CLUSTER, **{tier: (*getattr(CLUSTER, tier)[:-1], size)})
        for size in (solved, present)
    )
    cache.put(KEY, record(), then, b"{}", {})
    found, reason = cache.find(KEY, now, lambda candidate: candidate)
    assert (found is not None) == serves
    if not serves:
        told = f"rank 7 has {format_size(present)} of {tier[5:].upper()}, but it was solved for "
        assert told + format_size(solved) in reason


def test_sizes_that_look_the_same_are_told_in_bytes():
    cache = Cache(MemoryStore(), capacity_tolerance=0.0)
    ranks = len(CLUSTER.rank_hbm)
    cache.put(KEY, record(), replace(CLUSTER, rank_hbm=(1 << 40,) * ranks), b"{}", {})
    now = replace(CLUSTER, rank_hbm=((1 << 40) + 4,) * ranks)
    _, reason = cache.find(KEY, now, lambda candidate: candidate)
    assert "has 1,099,511,627,780 B of HBM, but it was solved for 1,099,511,627,776 B" in reason


def test_an_entry_of_an_older_version_is_a_miss_that_says_so():
    store = MemoryStore()
    cache = Cache(store)
    cache.put(KEY, record(), CLUSTER, b"{}", {})
    ((name, data),) = store.read(KEY)
    at = len(FORMAT.magic)
    store.write(KEY, name, data[:at] + b"\x01\x00" + data[at + 2 :])
    found, reason = cache.find(KEY, CLUSTER, lambda candidate: candidate)
    assert found is None
    assert "older schema 1, this version reads 2: an older fastplan stored it" in reason


def test_the_smaller_cluster_has_of_each_kind_on_each_rank_what_both_have():
    here = replace(CLUSTER, rank_hbm=(5, 9) * 4, rank_ddr=(7,) * 8, rank_ssd=(0, 3) * 4)
    there = replace(CLUSTER, rank_hbm=(6,) * 8, rank_ddr=(1, 8) * 4, rank_ssd=(2,) * 8)
    for one, other in ((here, there), (there, here)):
        least = smaller(one, capacities_of(other))
        assert least.rank_hbm == (5, 6) * 4
        assert least.rank_ddr == (1, 7) * 4
        assert least.rank_ssd == (0, 2) * 4
        assert least.group_size == CLUSTER.group_size
