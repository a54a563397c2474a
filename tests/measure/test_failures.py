"""What is made of ranks that die or hang."""

import os
import signal

import pytest

from fastplan.measure.failures import (
    Failure,
    Fault,
    explain_exit,
    explain_hang,
    oom_kills,
    read_exit_codes,
    read_faults,
)
from fastplan.measure.processes import Heartbeat, Heartbeats, read_heartbeats

LABELS = ("a.json", "b.json")


def beat(rank, stages=5, plan=1, stage="step"):
    return Heartbeat(rank, os.getpid(), 1, "host", plan, 3, stage, stages)


def fault(rank, time=1.0, kind="ValueError", text="bad", plan=1):
    return Fault(rank, time, kind, text, plan, 0, "shard")


BEATS = {0: beat(0), 1: beat(1)}


def test_who_is_killed_is_to_blame_and_not_who_notices():
    found = explain_exit(
        {0: 1, 1: -signal.SIGKILL}, BEATS, [fault(0, text="Connection closed by peer")], 0
    )
    assert (found.plan, found.round, found.ranks) == (1, 3, (1,))
    assert found.reason == (
        "killed by SIGKILL, for example by a container's memory limit while in step"
    )


def test_the_kernel_s_oom_killer_is_named():
    found = explain_exit({1: -signal.SIGKILL}, BEATS, [], 1)
    assert found.reason.startswith("out of memory: killed by the kernel's OOM killer")


def test_of_several_errors_the_first_one_counts():
    faults = sorted([fault(0, 2.0, text="peer"), fault(1, 1.0)], key=lambda each: each.time)
    found = explain_exit({0: 1, 1: 1}, BEATS, faults, 0)
    assert found.ranks == (1,)
    assert found.reason == "ValueError: bad while sharding the model"


def test_ranks_that_torchrun_ended_are_not_to_blame():
    found = explain_exit({0: -signal.SIGTERM, 1: 1}, BEATS, [fault(1)], 0)
    assert found.ranks == (1,)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("MemoryError", ""),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB"),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes"),
    ],
)
def test_errors_about_memory_are_called_so(kind, text):
    found = explain_exit({1: 1}, BEATS, [fault(1, kind=kind, text=text)], 0)
    assert found.reason.startswith(f"out of memory: {kind}")


@pytest.mark.parametrize(
    ("code", "words"),
    [(-signal.SIGSEGV, "killed by SIGSEGV"), (-99, "killed by signal 99"), (3, "exit code 3")],
)
def test_other_ends_are_told_as_they_are(code, words):
    assert words in explain_exit({0: code}, BEATS, [], 0).reason


def test_nothing_known_is_said_so():
    found = explain_exit({}, {}, [], 0)
    assert found == Failure(None, None, (), "torchrun ended without naming a rank")
    assert found.text(LABELS).startswith("before the first plan: ")


def test_an_end_before_the_first_plan_names_none():
    found = explain_exit({0: 1}, {0: beat(0, plan=-1)}, [], 0)
    assert found.plan is None


def test_a_rank_that_lags_behind_is_to_blame():
    beats = {0: beat(0, 9), 1: beat(1, 7, stage="wait for step"), 2: beat(2, 9)}
    found = explain_hang(beats, {}, 3, 10)
    assert found.ranks == (1,)
    assert found.text(LABELS) == "b.json, rank 1: no progress for 10 s while in wait for step"


def test_of_ranks_in_one_stage_who_does_not_wait_for_others_is_to_blame():
    stacks = {
        0: 'File "x/torch/distributed/distributed_c10d.py", line 1 in barrier',
        1: 'File "mine.py", line 3 in endless',
    }
    assert explain_hang(BEATS, stacks, 2, 10).ranks == (1,)


def test_where_nobody_stands_out_nobody_is_blamed():
    stack = 'File "x/torch/distributed/distributed_c10d.py", line 1 in barrier'
    found = explain_hang(BEATS, {0: stack, 1: stack}, 2, 10)
    assert found.ranks == ()
    assert "no single rank is responsible" in found.reason


def test_ranks_that_never_started_are_named():
    found = explain_hang({0: beat(0)}, {}, 3, 10)
    assert found.ranks == (1, 2)
    assert found.text(LABELS) == "before the first plan, ranks 1, 2: did not start within 10 s"


def test_faults_are_read_in_order_and_damaged_ones_skipped(tmp_path):
    for each in (fault(0, 3.0), fault(1, 1.0), fault(2, 2.0)):
        each.write(tmp_path)
    (tmp_path / "fault-9.json").write_text("{")
    assert [each.rank for each in read_faults(tmp_path)] == [1, 2, 0]


def test_exits_that_nobody_noted_are_none(tmp_path):
    assert read_exit_codes(tmp_path) == {}
    (tmp_path / "exits-7.json").write_text('{"1": -9}')
    assert read_exit_codes(tmp_path) == {1: -9}


def test_the_kernel_counts_what_it_kills():
    assert oom_kills() >= 0


def test_beats_tell_where_a_rank_is(tmp_path):
    own = Heartbeats(tmp_path, 3)
    own.turn(1, 2)
    own.stage("a stage with a long name")
    own.stage("step")
    (found,) = read_heartbeats(tmp_path).values()
    assert (found.rank, found.plan, found.round, found.stage, found.stages) == (3, 1, 2, "step", 3)
    assert found.pid == os.getpid()
    (tmp_path / "rank-4.json").write_bytes(b"")
    assert list(read_heartbeats(tmp_path)) == [3]
