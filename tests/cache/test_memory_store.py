"""The store in memory keeps the recently used and forgets the rest."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastplan.cache.stores import MemoryStore
from tests.cache.samples import key


def held(store):
    return {number for number in range(200) if store.read(key(number))}


def test_the_least_recently_used_go_first():
    store = MemoryStore(max_bytes=300)
    for number in range(3):
        store.write(key(number), "a", bytes(100))
    store.touch(key(0), "a")
    store.write(key(3), "a", bytes(100))
    assert held(store) == {0, 2, 3}


def test_writing_again_counts_as_use_and_replaces_the_size():
    store = MemoryStore(max_bytes=300)
    store.write(key(0), "a", bytes(200))
    store.write(key(1), "a", bytes(100))
    store.write(key(0), "a", bytes(100))
    store.write(key(2), "a", bytes(100))
    assert held(store) == {0, 1, 2}
    store.write(key(3), "a", bytes(100))
    assert held(store) == {0, 2, 3}


def test_what_was_just_written_stays_even_if_it_is_too_large():
    store = MemoryStore(max_bytes=100)
    store.write(key(0), "a", bytes(50))
    store.write(key(1), "a", bytes(500))
    assert held(store) == {1}


def test_deleting_gives_the_space_back():
    store = MemoryStore(max_bytes=200)
    store.write(key(0), "a", bytes(100))
    store.write(key(1), "a", bytes(100))
    store.delete(key(0), "a")
    store.write(key(2), "a", bytes(100))
    assert held(store) == {1, 2}


def test_an_entry_does_not_change_with_the_buffer_it_came_from():
    store = MemoryStore()
    buffer = bytearray(b"plan")
    store.write(key(0), "a", buffer)
    buffer[:] = b"xxxx"
    assert store.read(key(0)) == [("a", b"plan")]


def test_many_threads_can_use_it_at_once():
    store = MemoryStore(max_bytes=5_000)

    def use(seed):
        draw = random.Random(seed)
        for _ in range(2_000):
            number = draw.randrange(100)
            draw.choice(
                [
                    lambda n=number: store.write(key(n), "a", bytes([n]) * 100),
                    lambda n=number: store.delete(key(n), "a"),
                    lambda n=number: store.touch(key(n), "a"),
                    lambda: list(store.keys()),
                ]
            )()
            assert store.read(key(number)) in ([], [("a", bytes([number]) * 100)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    kept = held(store)
    assert 0 < len(kept) <= 50
    assert set(store.keys()) == {key(number) for number in kept}


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="`max_bytes` must be at least 1, not 0"):
        MemoryStore(max_bytes=0)
