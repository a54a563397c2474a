"""What is in a store, and which of it may go."""

import pytest

from fastplan.cache.entry import encode
from fastplan.cache.inventory import (
    Limits,
    NoSuchEntry,
    entries_with_prefix,
    read_items,
    select_for_pruning,
)
from fastplan.cache.stores import MemoryStore, Stored, StoreError
from tests.cache.samples import data, entry, key


@pytest.fixture
def store():
    made = MemoryStore()
    for number in range(3):
        made.write(key(number), "a", data(number))
    return made


def items(store):
    return {item.stored.key: item for item in read_items(store, store.entries())}


def test_entries_are_read_with_where_they_lie(store):
    found = items(store)
    assert sorted(found) == sorted(key(number) for number in range(3))
    assert found[key(1)].entry == entry(1)
    assert found[key(1)].stored.size == len(data(1))


def test_a_damaged_entry_is_there_with_its_problem(store):
    store.write(key(1), "a", data(1)[:-3])
    found = items(store)
    assert found[key(1)].entry is None
    assert found[key(1)].problem.startswith("truncated: ")
    assert found[key(2)].entry == entry(2)


def test_an_entry_under_another_key_has_a_problem(store):
    store.write(key(1), "a", encode(entry(2)))
    assert items(store)[key(1)].problem == f"it belongs to the key {key(2)}"


def test_a_key_that_cannot_be_read_has_a_problem_and_the_others_are_read():
    class Broken(MemoryStore):
        def read(self, at):
            if at == key(1):
                raise StoreError("no rights")
            return super().read(at)

    store = Broken()
    for number in range(3):
        store.write(key(number), "a", data(number))
    found = items(store)
    assert found[key(1)].problem == "no rights"
    assert found[key(2)].entry == entry(2)


def test_an_entry_that_is_gone_since_it_was_listed_is_left_out(store):
    listed = list(store.entries())
    store.delete(key(1), "a")
    assert key(1) not in {item.stored.key for item in read_items(store, listed)}


def test_a_key_is_found_by_how_it_begins(store):
    store.write(key(1), "b", data(1))
    found = entries_with_prefix(store, key(1)[:5].upper())
    assert [(stored.key, stored.name) for stored in found] == [(key(1), "a"), (key(1), "b")]


@pytest.mark.parametrize("beginning", ["", "zz", "0" * 40])
def test_a_key_that_is_not_there_is_an_error_that_names_the_store(store, beginning):
    with pytest.raises(NoSuchEntry, match="no entry in memory:"):
        entries_with_prefix(store, beginning)


def test_a_beginning_that_several_keys_share_is_an_error_that_names_them():
    store = MemoryStore()
    for digit in "012345":
        store.write("ab" * 10 + digit * 20, "a", b"")
    with pytest.raises(NoSuchEntry, match="6 keys begin with 'ab': abab") as error:
        entries_with_prefix(store, "ab")
    assert str(error.value).endswith(", ...")


AGES = (50.0, 10.0, None, 30.0, 20.0)
ENTRIES = [
    Stored(key(i), "a", 100, None if age is None else 1000 - age) for i, age in enumerate(AGES)
]


def pruned(**limits):
    return [
        ENTRIES.index(stored)
        for stored in select_for_pruning(ENTRIES, Limits(**limits), now=1000.0)
    ]


def test_without_limits_everything_stays():
    assert pruned() == []


def test_what_was_not_used_for_too_long_goes():
    assert pruned(age=20.0) == [0, 3]


def test_what_has_no_known_age_is_not_too_old():
    assert 2 not in pruned(age=0.0)


def test_the_least_recently_used_go_until_few_enough_are_left():
    assert pruned(count=2) == [2, 0, 3]
    assert pruned(count=0) == [2, 0, 3, 4, 1]
    assert pruned(count=5) == []


def test_the_least_recently_used_go_until_the_rest_is_small_enough():
    assert pruned(size=299) == [2, 0, 3]
    assert pruned(size=300) == [2, 0]


def test_what_goes_for_its_age_counts_for_the_other_limits():
    assert pruned(age=20.0, count=3) == [2, 0, 3]
    assert pruned(age=25.0, size=200) == [2, 0, 3]
