"""A guarded store costs its time-out at most, and only once."""

import os
import subprocess
import sys
import threading
import time

import pytest

from fastplan.cache.stores import (
    DirectoryStore,
    GuardedStore,
    MemoryStore,
    StoreError,
    threads,
)
from fastplan.cache.stores.base import MAX_READ
from tests.cache.samples import key


class Broken(MemoryStore):
    """A store whose reads do what they are told to."""

    def __init__(self, action):
        super().__init__()
        self.action = action
        self.calls = 0

    def read(self, key):
        self.calls += 1
        return self.action()

    def keys(self):
        yield key(1)
        self.action()


def fail(error):
    raise error


@pytest.fixture
def hanging():
    """A store that hangs until the test is over, or so long that the test fails."""
    over = threading.Event()
    yield Broken(lambda: over.wait(60))
    over.set()


def test_a_hanging_call_ends_with_an_error_that_says_so(hanging):
    store = GuardedStore(hanging, timeout=0.05)
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"^memory:: reading timed out after 0\.05 s$"):
        store.read(key(1))
    assert time.monotonic() - begin >= 0.05


def test_after_a_time_out_no_call_is_tried_again(hanging):
    store = GuardedStore(hanging, timeout=0.01)
    with pytest.raises(StoreError):
        store.read(key(1))
    for call in (
        lambda: store.read(key(1)),
        lambda: store.write(key(1), "a", b""),
        lambda: store.delete(key(1), "a"),
        lambda: store.touch(key(1), "a"),
        store.keys,
    ):
        with pytest.raises(StoreError, match=r"not tried again .*reading timed out after 0.01 s"):
            call()
    assert hanging.calls == 1


def test_after_an_error_no_call_is_tried_again():
    broken = Broken(lambda: fail(StoreError("the disk is full")))
    store = GuardedStore(broken, timeout=60.0)
    with pytest.raises(StoreError, match=r"^the disk is full$"):
        store.read(key(1))
    with pytest.raises(StoreError, match="not tried again after a failure: the disk is full"):
        store.read(key(1))
    assert broken.calls == 1


def test_any_error_of_the_store_becomes_a_store_error():
    store = GuardedStore(Broken(lambda: fail(ZeroDivisionError("zero"))), timeout=60.0)
    with pytest.raises(StoreError, match="memory:: reading failed: ZeroDivisionError: zero"):
        store.read(key(1))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_store_that_leaves_does_not_take_its_user_along(error):
    store = GuardedStore(Broken(lambda: fail(error)), timeout=60.0)
    with pytest.raises(StoreError, match=f"reading failed: {type(error).__name__}"):
        store.read(key(1))


@pytest.mark.parametrize("answer", [None, 3, [1], [("a", "text")], [(1, b"")], "ab"], ids=repr)
def test_a_store_that_answers_nonsense_has_failed(answer):
    with pytest.raises(StoreError, match="reading failed"):
        GuardedStore(Broken(lambda: answer), timeout=60.0).read(key(1))


def test_a_store_can_not_hand_out_more_than_fits_into_memory():
    many = [(f"{i:04d}", bytes(1 << 20)) for i in range(1000)]
    found = GuardedStore(Broken(lambda: many), timeout=60.0).read(key(1))
    assert sum(len(data) for _, data in found) <= MAX_READ


def test_listing_is_guarded_to_its_last_key(hanging):
    with pytest.raises(StoreError, match="listing timed out"):
        GuardedStore(hanging, timeout=0.01).keys()


def test_a_malformed_key_is_the_callers_error_and_not_the_stores():
    store = GuardedStore(MemoryStore(), timeout=60.0)
    with pytest.raises(ValueError, match="`key`"):
        store.read("..")
    assert store.read(key(1)) == []


def test_a_time_out_must_be_positive():
    with pytest.raises(ValueError, match="`timeout` must be positive, not 0"):
        GuardedStore(MemoryStore(), timeout=0)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_time_out_may_be_longer_than_any_wait(timeout):
    assert GuardedStore(MemoryStore(), timeout).read(key(1)) == []


def test_no_thread_is_left_when_calls_have_ended():
    store = GuardedStore(MemoryStore(), timeout=60.0)
    for _ in range(20):
        store.read(key(1))
    left = [thread for thread in threading.enumerate() if thread.name == "fastplan-store"]
    for thread in left:
        thread.join(10.0)
        assert not thread.is_alive()


def test_a_failure_to_start_a_thread_is_a_store_error(monkeypatch):
    monkeypatch.setattr(threads, "_idle", [])
    monkeypatch.setattr(threading.Thread, "start", lambda _: fail(RuntimeError("no more threads")))
    with pytest.raises(StoreError, match="no more threads"):
        GuardedStore(MemoryStore(), timeout=60.0).read(key(1))


def test_a_hanging_call_does_not_hold_up_the_exit_of_the_interpreter():
    script = (
        "import threading\n"
        "from fastplan.cache.stores import GuardedStore, MemoryStore, StoreError\n"
        "class Hanging(MemoryStore):\n"
        "    def read(self, key):\n"
        "        threading.Event().wait()\n"
        "try:\n"
        "    GuardedStore(Hanging(), 0.01).read('ab' * 16)\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "memory:: reading timed out after 0.01 s\n"


class Marked(MemoryStore):
    """Notes what is marked as used, and may refuse to."""

    def __init__(self, refuse=False):
        super().__init__()
        self.marks = []
        self.refuse = refuse

    def touch(self, key, name):
        self.marks.append((key, name))
        if self.refuse:
            raise StoreError("read-only")


@pytest.mark.parametrize("refuse", [False, True])
def test_using_a_key_reads_its_entries_and_marks_each_even_where_marks_are_refused(refuse):
    inner = Marked(refuse)
    inner.write(key(1), "a", b"plan")
    store = GuardedStore(inner, timeout=60.0)
    assert store.use(key(1)).entries == [("a", b"plan")]
    assert store.use(key(2)).entries == []
    assert inner.marks == [(key(1), "a")]


class OwnRead(DirectoryStore):
    """Changes one step of the store it is made from."""

    def read(self, key):
        return [("b", b"own")]


def test_a_store_made_from_another_one_is_used_by_its_own_steps(tmp_path):
    store = GuardedStore(OwnRead(tmp_path), timeout=60.0)
    assert store.use(key(1)).entries == [("b", b"own")]


def threads_of_calls():
    return {each.ident for each in threading.enumerate() if each.name == "fastplan-store"}


def test_calls_one_after_the_other_share_a_thread():
    ran_in = []
    store = GuardedStore(Broken(lambda: ran_in.append(threading.get_ident()) or []), timeout=60.0)
    for _ in range(3):
        store.read(key(1))
    assert len({*ran_in}) == 1
    assert {*ran_in} <= threads_of_calls()


def test_a_thread_that_hangs_is_not_used_again(hanging):
    with pytest.raises(StoreError):
        GuardedStore(hanging, timeout=0.01).read(key(1))
    assert GuardedStore(MemoryStore(), timeout=60.0).read(key(1)) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_its_own_thread():
    code = """
import os
from fastplan.cache.stores import GuardedStore, MemoryStore
store = GuardedStore(MemoryStore(), timeout=60.0)
store.read("0" * 16)
child = os.fork()
if child == 0:
    os._exit(0 if store.read("0" * 16) == [] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
