"""The garbage collector waits for a plan, and then looks at no more than the plan."""

import gc
import itertools
import weakref

import pytest

from fastplan.torchrec import collective, compat

YOUNG = 10_000


@pytest.fixture
def collected():
    """The generations that are collected; all of them are due before the test begins."""
    thresholds = gc.get_threshold()
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(info["generation"])

    gc.set_threshold(10**9, 5, 5)
    gc.collect()
    for generation in (1, 0):
        for _ in range(6):
            gc.collect(generation)
    gc.set_threshold(YOUNG, 5, 5)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*thresholds)


class Itself:
    def __init__(self):
        self.itself = self


def garbage():
    return weakref.ref(Itself())


def objects():
    return [[] for _ in range(2 * YOUNG)]


def test_an_end_collects_what_the_block_made_and_not_the_process(collected):
    with compat.paused():
        kept = objects()
        assert collected == []
    assert collected == [0]
    assert len(kept) == 2 * YOUNG


@pytest.fixture
def first_freeze(monkeypatch):
    monkeypatch.setattr(compat, "_freezes", itertools.count(1))


def test_other_peoples_code_inside_a_pause_does_not_pay_for_what_was_made_before(
    collected, first_freeze
):
    with compat.paused():
        kept = objects()
        with compat.resumed():
            assert gc.isenabled()
            more = objects()
            assert 0 in collected
            assert not any(each is kept for each in gc.get_objects())
    assert gc.get_freeze_count() == 0
    assert len(kept) == len(more) == 2 * YOUNG


def test_other_peoples_garbage_inside_a_pause_is_collected(collected, first_freeze):
    with compat.paused(), compat.resumed():
        gone = garbage()
        gc.collect()
        assert gone() is None


def test_a_freeze_of_the_process_stays(collected, first_freeze):
    gc.freeze()
    try:
        with compat.paused(), compat.resumed():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_garbage_from_before_the_blocks_of_others_is_collected_at_last(collected, first_freeze):
    gone = []
    for _ in range(20):
        with compat.paused():
            gone.append(garbage())
            with compat.resumed():
                pass
    assert gone[0]() is None


def test_plans_alone_do_not_put_off_a_full_collection_for_good(collected):
    kept = []
    for _ in range(20):
        with compat.paused():
            kept.append(objects())
    assert max(collected) > 0


def test_ranks_of_a_collective_start_read_their_tables_without_a_collection(monkeypatch):
    enabled = []

    def drafted(*_):
        enabled.append(gc.isenabled())
        raise compat.NotNative("no more is needed")

    monkeypatch.setattr(collective, "drafted", drafted)
    collective._describe(None, None, [])
    assert enabled == [False]
    assert gc.isenabled()


def test_a_block_that_makes_little_collects_nothing(collected):
    with compat.paused():
        pass
    assert collected == []


def test_who_has_turned_the_collector_off_finds_it_off(collected):
    gc.disable()
    try:
        with compat.paused():
            objects()
        assert not gc.isenabled() and collected == []
    finally:
        gc.enable()


def test_the_collection_is_timed_by_whoever_asks(collected):
    entered = []

    class Timer:
        def __enter__(self):
            entered.append(list(collected))

        def __exit__(self, *error):
            entered.append(list(collected))

    with compat.paused(ending=Timer()):
        kept = objects()
    assert entered == [[], [0]]
    assert len(kept) == 2 * YOUNG
