"""A real job: two gloo ranks under torchrun, one of them killed, and a restart."""

import json
import subprocess
import sys

import pytest

from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load
from fastplan.ett.export import chrome_trace
from tests.ett.processes import environment

SAVED, KILLED, STEPS = 2, 4, 6


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    torchrun = ["torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    torchrun += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    worker = ["tests.ett.worker", "fastplan", str(folder)]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *torchrun, "-m", *worker],
        capture_output=True,
        text=True,
        timeout=240,
        # A store that outlives an attempt would hand the next one the addresses of the dead.
        env=environment(FASTPLAN_ETT=str(folder / "runs"), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
    )
    assert result.returncode == 0, result.stderr
    return load(folder / "runs")


@pytest.fixture(scope="module")
def report(job):
    return job_report(job)


def names(attempt, rank):
    return [phase.name for phase in attempt.ranks[rank].phases]


def test_there_is_a_file_per_rank_and_attempt(job):
    assert [len(attempt.ranks) for attempt in job.attempts] == [2, 2]
    assert [attempt.restart for attempt in job.attempts] == [0, 1]
    assert len({attempt.run for attempt in job.attempts}) == 1


def test_the_stock_phases_are_recorded_by_themselves(job, report):
    first, second = job.attempts
    for rank in (0, 1):
        assert {
            "process_group",
            "model_build",
            "broadcast",
            "dmp",
            "shard",
            "fused_optimizer",
            "data_parallel",
            "optimizer",
            "compile",
            "recompile",
            "checkpoint_save",
        } <= set(names(first, rank))
        assert "restore" in names(second, rank)
        assert "checkpoint_stage" in names(second, rank)
        assert [p.name for p in second.ranks[rank].background] == ["checkpoint_upload"]
    assert "plan" in names(first, 0)
    assert "plan" not in names(first, 1)
    assert "publish" in report.phases


def test_imports_are_a_separate_phase(report):
    assert report.phases["imports"] > 10 * report.phases["starting"]


def test_the_report_has_the_times_inside_the_planner(report):
    plan = report.attempts[0].plan
    assert (plan.rank, plan.engine, plan.cache) == (0, "native", "off")
    assert {"search", "build"} <= plan.parts.keys()


def test_a_rank_that_did_not_plan_records_how_it_rebuilt_the_plan(job):
    broadcast = next(p for p in job.attempts[0].ranks[1].phases if p.name == "broadcast")
    assert "build" in broadcast.more["parts"]


def test_the_killed_attempt_failed_and_its_work_after_the_checkpoint_is_lost(job, report):
    first, second = report.attempts
    assert report.failures == 1
    assert first.failed
    assert first.cause.startswith("rank 1 stopped without an error message")
    assert "; rank 0 noticed: " in first.cause
    assert not second.failed
    assert second.cause is None
    assert job.attempts[0].saved == SAVED
    assert first.steps == SAVED + 1
    # The last second of a process that is killed is not on disk.
    assert 0 <= report.lost_steps <= KILLED - SAVED
    assert report.steps == STEPS
    assert not job.attempts[0].ended
    assert job.attempts[1].ended


def test_the_upload_of_an_asynchronous_save_is_a_checkpoint(job):
    assert job.attempts[1].saved == STEPS - 1


def test_start_and_recovery_are_known(report):
    assert report.time_to_start > 0
    assert len(report.times_to_recover) == 1
    assert sum(report.phases.values()) == pytest.approx(report.seconds, abs=1e-9)
    assert report.productive > 0


def test_only_the_launchers_time_is_missing(report):
    assert [note for note in report.notes if "FASTPLAN_ETT_LAUNCHED" not in note] == []


def test_it_makes_a_trace(job):
    names = {event["name"] for event in json.loads(json.dumps(chrome_trace(job)))["traceEvents"]}
    assert {"plan", "DMP shard", "compile", "checkpoint upload"} <= names
