"""What every store does alike."""

import random
import subprocess
import sys

import pytest

from fastplan.cache.stores import Store
from tests.cache.samples import data, key


def test_it_is_a_store_and_says_where_it_is(store):
    assert isinstance(store, Store)
    assert store.describe()


def test_an_unknown_key_is_a_miss(store):
    assert store.read(key(1)) == []
    assert list(store.keys()) == []


def test_what_was_written_is_read(store):
    store.write(key(1), "a", data(1))
    assert store.read(key(1)) == [("a", data(1))]
    assert store.read(key(2)) == []


def test_a_key_holds_entries_by_name(store):
    store.write(key(1), "b", data(1))
    store.write(key(1), "a-0", data(2))
    store.write(key(1), "b", data(3))
    assert store.read(key(1)) == [("a-0", data(2)), ("b", data(3))]


def test_an_empty_entry_is_no_miss(store):
    store.write(key(1), "a", b"")
    assert store.read(key(1)) == [("a", b"")]


def test_a_deleted_entry_is_gone_and_deleting_it_again_is_no_error(store):
    store.write(key(1), "a", data(1))
    store.write(key(1), "b", data(2))
    store.delete(key(1), "a")
    assert store.read(key(1)) == [("b", data(2))]
    store.delete(key(1), "a")
    store.delete(key(1), "b")
    store.delete(key(2), "a")
    assert store.read(key(1)) == []
    assert list(store.keys()) == []


def test_keys_are_those_that_hold_entries(store):
    for number in range(20):
        store.write(key(number), "a", data(number))
    store.write(key(3), "b", data(3))
    store.delete(key(7), "a")
    assert sorted(store.keys()) == sorted(key(number) for number in range(20) if number != 7)


def test_entries_are_listed_with_their_sizes(store):
    assert list(store.entries()) == []
    store.write(key(1), "b", data(1))
    store.write(key(1), "a", b"")
    store.write(key(2), "a", data(2))
    listed = [stored[:3] for stored in store.entries()]
    expected = [(key(1), "a", 0), (key(1), "b", len(data(1))), (key(2), "a", len(data(2)))]
    assert listed == sorted(expected)


def test_an_entrys_time_is_unknown_or_in_seconds_since_1970(store):
    store.write(key(1), "a", data(1))
    (stored,) = store.entries()
    assert stored.used is None or 1.6e9 < stored.used < 1e11


def test_marking_is_no_error_whether_or_not_the_entry_is_there(store):
    store.touch(key(1), "a")
    store.write(key(1), "a", data(1))
    store.touch(key(1), "a")
    store.touch(key(1), "b")
    assert store.read(key(1)) == [("a", data(1))]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "..",
        "../" * 8,
        "ab" * 7,
        "AB" * 16,
        "ab" * 65,
        key(1) + "\n",
        key(1)[:-1] + "/",
        "/" * 32,
    ],
)
def test_a_malformed_key_is_a_value_error(store, bad):
    for call in (
        lambda: store.read(bad),
        lambda: store.write(bad, "a", b""),
        lambda: store.delete(bad, "a"),
        lambda: store.touch(bad, "a"),
    ):
        with pytest.raises(ValueError, match="`key` must be"):
            call()
    assert store.read(key(1)) == []


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "../a", "A", "a.plan", "a" * 65, "a\n", "ä"])
def test_a_malformed_name_is_a_value_error(store, bad):
    for call in (
        lambda: store.write(key(1), bad, b""),
        lambda: store.delete(key(1), bad),
        lambda: store.touch(key(1), bad),
    ):
        with pytest.raises(ValueError, match="`name` must be"):
            call()
    assert store.read(key(1)) == []


def test_a_long_random_use_gives_what_a_dict_gives(store):
    draw = random.Random(7)
    expected = {}
    for step in range(150):
        at, name = key(draw.randrange(6)), draw.choice("ab")
        if draw.random() < 0.6:
            store.write(at, name, data(step))
            expected.setdefault(at, {})[name] = data(step)
        else:
            store.delete(at, name)
            expected.get(at, {}).pop(name, None)
        assert store.read(at) == sorted(expected.get(at, {}).items())


def test_importing_the_stores_loads_nothing_heavy():
    script = (
        "import sys, fastplan.cache.entry, fastplan.cache.stores\n"
        "print({'torch', 'torchrec', 'numpy', 'fsspec'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "set()"


def test_of_a_flooded_key_the_small_entries_are_read(store):
    store.write(key(1), "zz", data(1))
    for number in range(100):
        store.write(key(1), f"{number:03d}", bytes(2000 + number))
    names = [name for name, _ in store.read(key(1))]
    assert len(names) <= 100
    assert "zz" in names
