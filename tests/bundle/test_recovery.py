"""A job whose rank is killed starts again from the bundle that its first start has left."""

import json
import shutil
from importlib.util import find_spec

import pytest

from bench.ett_check import differing_losses, read_starts, wrong_starts
from bench.ett_launch import Steps, run_job
from bench.ett_report import digest
from fastplan.bundle import open_bundle
from fastplan.ett.arithmetic import job_report
from fastplan.ett.building import load

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="the job has a TorchRec model"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++"),
]

TABLES, RANKS = 4, 2
STEPS = Steps(last=4, saved=1, killed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    own = tmp_path_factory.mktemp("job") / "bundle"
    run_job("bundle", TABLES, RANKS, STEPS, own)
    return own


@pytest.fixture(scope="module")
def report(folder):
    return job_report(load(folder / "runs"))


def test_the_restart_neither_searches_nor_compiles(folder):
    assert wrong_starts("bundle", folder, RANKS) == []
    first, second = (read_starts(folder, attempt, RANKS) for attempt in (0, 1))
    assert [start["taken"] for start in first] == RANKS * [[0, 0, 0]]
    assert all(plans == 1 and min(rest) > 0 for plans, *rest in (s["taken"] for s in second))
    assert [start["saved"] for start in second] == RANKS * [False]
    assert open_bundle(folder / "kept" / "start.bundle").find_damage() == []


def test_steps_that_are_done_again_have_the_same_losses_to_the_bit(folder):
    assert differing_losses({"bundle": folder}, RANKS, STEPS) == []


def test_bundle_phases_are_in_the_account_of_both_starts(report):
    first, second = report.attempts
    assert "bundle_save" in first.phases
    assert "bundle" in second.until_first_step
    assert first.until_first_step["compile"] > second.until_first_step["compile"]


def test_the_result_tells_what_the_starts_have_done(folder, report):
    starts = [read_starts(folder, attempt, RANKS) for attempt in (0, 1)]
    first, second = json.loads(json.dumps(digest(report, starts)))["starts"]
    assert (first["searched"], second["searched"]) == (True, False)
    assert first["graphs_compiled"] > 0
    assert (second["graphs_compiled"], second["graphs_found"]) == (0, 8)
