"""The cause of an attempt's end: the rank that failed, not the rank that noticed."""

import pytest

from fastplan.ett.arithmetic import read_report
from fastplan.ett.causes import is_lost_peer
from tests.ett.runs import Rank

GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by "
    "peer [127.0.0.1]:31744"
)
NCCL = (
    "DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1395, remote process exited or there "
    "was a network error, NCCL version 2.21.5\nncclRemoteError"
)
RECV = "DistNetworkError: failed to recv, got 0 bytes"
TIMED_OUT = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete"


def cause_of(directory, failures, world=4, ended=()):
    """The cause if these ranks raise these errors, and the others' records stop."""
    for number in range(world):
        rank = Rank(directory, number, world=world).steps(1, 5, 1.0)
        if number in failures:
            after, cause = failures[number]
            rank.wait(after).recorder.failure(cause)
        elif number in ended:
            rank.recorder.stop()
    for number in range(world):
        Rank(directory, number, world=world, attempt=1, begin=60.0).steps(6, 7, 1.0).recorder.stop()
    return read_report(directory).attempts[0].cause


@pytest.mark.parametrize("error", [GLOO, NCCL, RECV, TIMED_OUT])
def test_a_killed_rank_is_the_cause_and_not_the_ranks_that_noticed(tmp_path, error):
    failures = {0: (0.2, error), 1: (0.1, error), 3: (0.3, error)}
    assert cause_of(tmp_path, failures) == (
        f"rank 2 stopped without an error message (killed?); rank 1 noticed: {error}"
    )


def test_ranks_that_torchrun_ended_are_named_with_the_killed_one(tmp_path):
    cause = cause_of(tmp_path, {0: (0.1, GLOO), 2: (0.2, GLOO)})
    assert cause.startswith("ranks 1,3 stopped without an error message (killed?); rank 0 noticed")


def test_an_error_of_its_own_is_the_cause_although_others_were_ended(tmp_path):
    failures = {1: (0.3, "ValueError: bad batch"), 0: (0.1, GLOO)}
    assert cause_of(tmp_path, failures) == "rank 1: ValueError: bad batch"


def test_a_lost_connection_is_the_cause_if_no_record_stops(tmp_path):
    cause = cause_of(tmp_path, {0: (0.2, GLOO), 1: (0.1, GLOO)}, ended=(2, 3))
    assert cause == f"rank 1: {GLOO}"


def test_a_job_of_silent_ranks_has_no_witness(tmp_path):
    assert cause_of(tmp_path, {}) == "all ranks stopped without an error message (killed?)"
    assert cause_of(tmp_path / "b", {}, ended=(0, 1, 3)) == (
        "rank 2 stopped without an error message (killed?)"
    )


@pytest.mark.parametrize(
    "error",
    ["ValueError: bad batch", "OutOfMemoryError: CUDA out of memory", "KeyError: 'peer'", "killed"],
)
def test_other_errors_are_not_about_a_peer(error):
    assert not is_lost_peer(error)
