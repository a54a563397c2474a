"""Proposals are identified as TorchRec does it, by the hashes of their options."""

from typing import Any

import pytest
from torchrec.distributed.planner.types import Storage

from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences.storage_tiers import bytes_of
from fastplan.torchrec.read.space import PythonSpace, place
from fastplan.torchrec.search.known_options import OptionIndex
from tests.parity.families import FAMILIES
from tests.parity.meddlers import by_table
from tests.torchrec.test_option_estimates import drawn


@pytest.fixture
def proposal() -> list[Any]:
    _, options = drawn(next(iter(FAMILIES)))
    return [table[0] for table in by_table(options)]


def index_of(options: list[Any]) -> OptionIndex:
    return OptionIndex(options, PythonSpace(options).columns)


def test_the_order_of_a_proposal_does_not_change_its_key(proposal: list[Any]) -> None:
    known, backwards = index_of(proposal), proposal[::-1]
    assert hash(proposal[0]) != hash(backwards[0])
    key, numbers = known.identify(proposal, checked=True)
    assert numbers == list(range(len(proposal)))
    assert known.identify(backwards, checked=True) == (key, numbers[::-1])
    assert known.identify(backwards, checked=False) == (key, numbers[::-1])


def test_a_changed_option_changes_the_key_until_it_is_changed_back(proposal: list[Any]) -> None:
    known = index_of(proposal)
    before = known.identify(proposal, checked=True)
    proposal[0].shards[0].rank = 1
    key, numbers = known.identify(proposal, checked=True)
    assert key != before[0] and numbers is None
    proposal[0].shards[0].rank = None
    assert known.identify(proposal, checked=True) == before


def test_options_of_others_share_a_key_with_equal_ones(proposal: list[Any]) -> None:
    _, others = drawn(next(iter(FAMILIES)))
    plan = [table[0] for table in by_table(others)]
    key, _ = index_of(proposal).identify(proposal, checked=True)
    assert index_of(proposal).identify(plan, checked=True) == (key, None)


def test_the_storage_of_a_proposal_is_that_of_its_options(proposal: list[Any]) -> None:
    expected = sum((option.total_storage for option in proposal[1:]), Storage(0, 0))
    known = index_of(proposal)
    assert known.storage(range(1, len(proposal))) == bytes_of(expected)


def test_options_that_changed_since_their_columns_were_read_are_not_known(
    proposal: list[Any],
) -> None:
    known = index_of(proposal)
    proposal[0].shards[0].storage.hbm += 1
    known.remember_all()
    assert known.identify(proposal, checked=True)[1] is None


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_are_those_that_python_sets(family: str) -> None:
    _, options = drawn(family)
    plan = [table[-1] for table in by_table(options)]
    try:
        known = index_of(options)
    except NotNative:
        pytest.skip("the core can't hold these options")
    known.remember_all()
    key, numbers = known.identify(plan, checked=True)
    assert numbers is not None
    ranks = list(range(sum(option.num_shards for option in plan)))[::-1]
    known.place(plan, numbers, ranks)
    placed = [[shard.rank for shard in option.shards] for option in plan]
    assert placed == [[shard.rank for shard in option.shards] for option in place(plan, ranks)]
    assert known.identify(plan, checked=True)[1] is None
    known.reset_ranks(plan)
    assert known.identify(plan, checked=True) == (key, numbers)
