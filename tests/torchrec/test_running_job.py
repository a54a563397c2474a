"""Tables that move while a job trains, between any two plans, on four gloo ranks."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torchrec.distributed.types import ShardingPlan

from fastplan import reshard

_SECONDS = 1800


def run(worker: str, *arguments: Any) -> list[Any]:
    """What a worker prints, which starts four ranks itself."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"tests.torchrec.{worker}", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_pairs(ranks: list[Any], count: int) -> None:
    assert [len(moves) for moves in ranks] == [count] * 4
    for moves in ranks:
        for each in moves:
            sent, told, least = each["bytes"]
            assert each["needs_restart"] == {}, each
            assert each["wrong"] == [], each  # states that are not what they were, to the bit
            assert sent == told == least, each
            assert each["plan"], each
            assert each["random"], each
            assert each["rates"] in ([], [0.05]), each
            assert each.get("steps", True), each
            # Beside a job that was built under the plan, and has the same tables and states.
            twin = [each.get(name, True) for name in ("shown", "losses", "twin")]
            assert twin == [True] * 3, each


def test_states_stay_and_ranks_send_only_what_others_lack(tmp_path):
    # The first plan is compared with a job that was built under it.
    check_pairs(run("live_worker", tmp_path, 0, 2), 8)


@pytest.mark.long
def test_states_stay_in_two_hundred_moves(tmp_path):
    check_pairs(run("live_worker", tmp_path, 100, 50), 200)


def check_raising(ranks: list[Any]) -> None:
    for own in ranks:
        *failed, last = own
        assert len(failed) == 13
        for each in failed:
            assert f"rank {each['victim']} can't" in each["error"], each
            assert "InjectedError: out of order" in each["error"], each
            assert "old plan" in each["error"], each
            assert each["unchanged"], each
            assert each["trains"], each
            assert each["equal"], each
        assert (last["error"], last["left"]) == ("", {})


def check_killed(runs: list[Any]) -> None:
    for each in runs:
        left = [told for rank, told in enumerate(each["ranks"]) if rank != each["victim"]]
        assert each["ranks"][each["victim"]] is None, each
        for told in left:
            if each["place"] == "after the move":
                assert (told["error"], told["moved"]) == ("", True), each
            else:
                assert "another rank was lost" in told["error"], each
                assert "restart the job" in told["error"], each
                assert told["unchanged"], each
                assert not told["moved"], each


def test_a_rank_that_fails_leaves_all_ranks_with_the_old_plan(tmp_path):
    [ranks] = run("live_fault_worker", "raising", tmp_path, 0, 1)
    check_raising(ranks)


def test_a_rank_that_is_killed_leaves_no_mixed_plan(tmp_path):
    # The places are in the order of a move: here in the exchange of shards, and in the last
    # agreement.
    check_killed(run("live_fault_worker", "killed", tmp_path, 6, 1))
    check_killed(run("live_fault_worker", "killed", tmp_path, 17, 1))


@pytest.mark.long
def test_ranks_that_fail_or_are_killed_anywhere_leave_no_mixed_plan(tmp_path):
    check_killed(run("live_fault_worker", "killed", tmp_path / "killed", 0, 20))
    for ranks in run("live_fault_worker", "raising", tmp_path / "raising", 0, 3):
        check_raising(ranks)


@pytest.fixture(scope="module")
def told_by_rank(tmp_path_factory):
    return run("live_arguments_worker", tmp_path_factory.mktemp("arguments"))


@pytest.mark.parametrize(
    ("case", "error", "of_others"),
    [
        ("round_bytes", "ReshardError", "different values of `round_bytes` (67108864 and 1000)"),
        ("merge", "ReshardError", "different values of `merge` (exact and mean)"),
        ("no int", "TypeError", "`round_bytes` must be an int, not a float"),
        ("no merge", "ValueError", "`merge` must be 'exact' or 'mean', not 'max'"),
        ("no optimizer", "TypeError", "`optimizer` must be an optimizer of torch or TorchRec"),
        ("no plan", "TypeError", "`after` must be a ShardingPlan, not a NoneType"),
    ],
)
def test_arguments_of_one_rank_stop_all_ranks_at_once(told_by_rank, case, error, of_others):
    for rank, found in enumerate(told_by_rank):
        each = found[case]
        assert each["error"].startswith(f"{error if rank == 1 else 'ReshardError'}: "), each
        assert of_others in each["error"], each
        assert each["unchanged"], each
        assert each["seconds"] < 20, each  # the group waits for 60


def test_settings_that_one_rank_can_not_set_are_refused_on_all_ranks(told_by_rank):
    for found in told_by_rank:
        [(table, why)] = found["settings"]["needs_restart"].items()
        assert table == "sparse.bags.t0"
        assert "it has lr = 0.5 in `optimizer`, and would have lr = 0.1 in its fused" in why
        assert found["settings"]["unchanged"]
        assert (found[""]["needs_restart"], found[""]["error"]) == ({}, "")
        assert not found[""]["unchanged"]


def test_a_model_that_is_not_sharded_is_refused_by_name():
    with pytest.raises(TypeError, match="`job` must be a DistributedModelParallel, not a Linear"):
        reshard(torch.nn.Linear(2, 2), ShardingPlan({}))
