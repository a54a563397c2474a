"""`fastplan measure` and `fastplan calibrate`, with ranks that are not really there."""

import json
import sys
from types import SimpleNamespace

import pytest

from fastplan.cli.main import main
from fastplan.measure import calibrate as calibrate_module
from fastplan.measure import run as run_module
from fastplan.measure.calibrate import Calibrated
from fastplan.measure.constants import calibration
from fastplan.measure.failures import Failure
from fastplan.measure.settings import PARTS, ROUNDS, WorkerConfig, append_line
from fastplan.plans.file import write_plan
from fastplan.spec.hardware import find_hardware
from tests.cli.command import ClosedPipe
from tests.measure.points import points
from tests.measure.samples import model, planned, spec


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A model and two plans in the current folder, and ranks that take 10 ms a step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(model()))
    for kind in ("table_wise", "row_wise"):
        write_plan(planned(spec(), kind), tmp_path / f"{kind}.json")
    state = SimpleNamespace(folder=tmp_path, failing=None, groups=[])

    def run_group(folder, group, watch):
        state.groups.append(group)
        for turn in WorkerConfig.read(folder).turns:
            if turn.plan == state.failing:
                return Failure(turn.plan, turn.round, (1,), "killed by SIGKILL")
            rank = {
                "rank": 0,
                "device": "no CPU",
                "steps": [0.01] * 3,
                "parts": {part: [0.002] * 3 for part in PARTS},
                "peak_memory": 1 << 20,
            }
            line = {**turn._asdict(), "ranks": [rank, {**rank, "rank": 1}]}
            append_line(folder / ROUNDS, json.dumps(line))
            watch()
        return None

    monkeypatch.setattr(run_module, "run_group", run_group)
    return state


MEASURE = ("measure", "model.json", "table_wise.json", "row_wise.json", "--device", "cpu")


def call(capsys, *words):
    code = main(words)
    return code, *capsys.readouterr()


def test_plans_are_measured_and_shown(files, capsys):
    code, out, _ = call(capsys, *MEASURE, "--nproc", "2", "-o", "runs", "--rounds", "2")
    assert code == 0
    assert "small on 2 cpu ranks (no CPU), batch 32" in out
    assert "table_wise.json" in out
    assert "10.00 ms" in out
    assert "written: runs" in out


def test_results_can_be_had_as_json(files, capsys):
    code, out, _ = call(capsys, *MEASURE, "--nproc", "2", "-o", "runs", "--json")
    told = json.loads(out)
    assert code == 0
    assert [plan["label"] for plan in told["plans"]] == ["table_wise.json", "row_wise.json"]


def test_a_failed_plan_is_an_error_and_the_others_are_shown(files, capsys):
    files.failing = 0
    code, out, errors = call(capsys, *MEASURE, "--nproc", "2", "-o", "runs", "--rounds", "1")
    assert code == 1
    assert "row_wise.json" in out
    assert "fastplan: error: 1 of 2 plans failed: table_wise.json, rank 1: killed" in errors
    assert "runs/logs" in errors


def test_the_same_plan_twice_gets_two_names(files, capsys):
    words = ("measure", "model.json", "table_wise.json", "table_wise.json", "--device", "cpu")
    _, out, _ = call(capsys, *words, "--nproc", "2", "-o", "runs", "--json")
    labels = [plan["label"] for plan in json.loads(out)["plans"]]
    assert labels == ["table_wise.json #1", "table_wise.json #2"]


def test_torchrun_s_arguments_are_handed_on(files, capsys):
    code, _, errors = call(
        capsys, *MEASURE, "--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", "a:1", "-o", "runs"
    )
    assert code == 0, errors
    (group,) = files.groups
    assert (group.ranks, group.hosts) == (2, 2)
    assert group.torchrun == ("--rdzv-endpoint", "a:1")


def test_emulated_hosts_have_cpu_ranks_and_a_link(files, capsys, monkeypatch):
    monkeypatch.setattr("fastplan.measure.hosts.why_unavailable", lambda: None)
    words = ("--nproc", "1", "--hosts", "2", "--link", "500Mbit", "-o", "runs")
    code, _, errors = call(capsys, *MEASURE, *words)
    assert code == 0, errors
    (group,) = files.groups
    assert (group.device, group.ranks, group.hosts, group.link) == ("cpu", 2, 2, 500_000_000)


def test_a_machine_that_cannot_emulate_hosts_says_why(files, capsys, monkeypatch):
    monkeypatch.setattr("fastplan.measure.hosts.why_unavailable", lambda: "no root")
    words = ("--nproc", "1", "--hosts", "2", "--link", "500Mbit", "-o", "runs")
    code, _, errors = call(capsys, *MEASURE, *words)
    assert code == 1
    assert "--hosts 2: no root" in errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nproc", "4"), "is a plan for 2 ranks, not for 4"),
        (("--nproc", "0"), "--nproc must be more than 0"),
        (("--nproc", "2", "--timeout", "0"), "--timeout must be more than 0"),
        (("--nproc", "2", "--rounds", "0"), "--rounds must be at least 1, not 0"),
        (("--nproc", "2", "--scale-rows", "x"), "must be `auto`, or a whole number"),
        (("--nproc", "2", "--nnodes", "2"), "--rdzv-endpoint HOST:PORT"),
        (("--nproc", "2", "--rdzv-id", "x"), "give --nnodes, too"),
        (("--nproc", "2", "--link", "1Gbit"), "--link needs --hosts N"),
        (("--nproc", "1", "--hosts", "2"), "--hosts needs --link RATE"),
        (("--nproc", "2", "--hosts", "1", "--link", "1Gbit"), "at least 2 hosts"),
        (("--nproc", "1", "--hosts", "2", "--link", "1GB"), "must be a rate such as 500Mbit"),
        (("--nproc", "2", "--zipf", "-1"), "--zipf must be from 0 to below 10, not -1"),
        (("--nproc", "2", "--batch-size", "0"), "--batch-size must be from 1 to"),
        (("--nproc", "2", "--dataset", "nope"), "must be package.module:function, not 'nope'"),
        (("--nproc", "2", "--dataset", "no_such:f"), "no_such can't be imported"),
        (("--nproc", "2", "--dataset", "json:nowhere"), "module json has no 'nowhere'"),
        (("--nproc", "2", "--dataset", "json:__name__"), "is a str, not a function"),
        ((), "--nproc"),
    ],
)
def test_what_cannot_be_measured_is_one_line(files, capsys, words, told):
    code, out, errors = call(capsys, *MEASURE, "-o", "runs", *words)
    assert (code, out) == (1, "")
    assert told in errors
    assert errors.count("\n") == 1
    assert not (files.folder / "runs").exists()


def test_a_folder_in_which_nothing_was_measured_can_be_used_again(files, capsys):
    words = ("measure", "model.json", "table_wise.json", "--device", "cpu", "--nproc", "2")
    files.failing = 0
    assert call(capsys, *words, "-o", "runs")[0] == 1
    files.failing = None
    code, out, errors = call(capsys, *words, "-o", "runs", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(out)["failures"] == []
    assert "runs already contains a measurement" in call(capsys, *words, "-o", "runs")[2]


def test_an_interrupt_before_the_first_round_leaves_the_folder_usable(files, capsys, monkeypatch):
    run_group = run_module.run_group

    def interrupted(folder, group, watch):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "run_group", interrupted)
    words = (*MEASURE, "--nproc", "2", "-o", "runs")
    code, _, errors = call(capsys, *words)
    assert (code, errors) == (130, "\nfastplan: interrupted; no round was finished\n")
    monkeypatch.setattr(run_module, "run_group", run_group)
    assert call(capsys, *words)[0] == 0


def test_the_folder_of_an_interrupted_measurement_is_shown_with_escapes(files, capsys, monkeypatch):
    def interrupted(folder, group, watch):
        (folder / "rounds.jsonl").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "run_group", interrupted)
    _, _, errors = call(capsys, *MEASURE, "--nproc", "2", "-o", "a\x1b[2J\u202e")
    assert errors.endswith(r"finished rounds are in a\x1b[2J\u202e" + "\n")


def test_a_measurement_that_is_running_is_left_alone(files, capsys, monkeypatch):
    seen = []

    def run_group(folder, group, watch):
        seen.append(call(capsys, *MEASURE, "--nproc", "2", "-o", "runs")[2])
        return Failure(None, None, (0,), "killed by SIGKILL")

    monkeypatch.setattr(run_module, "run_group", run_group)
    call(capsys, *MEASURE, "--nproc", "2", "-o", "runs")
    assert len(seen) == 1 and "runs already contains a measurement" in seen[0]


@pytest.fixture
def calibrated(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    measured = tuple(points(noise=0.01))
    found = Calibrated(calibration(measured, "cpu", 4, 1), measured, ("no CPU",))
    monkeypatch.setattr(calibrate_module, "calibrate", lambda *_, **__: found)


CALIBRATE = ("calibrate", "--nproc", "4", "--device", "cpu")


def test_a_calibration_writes_a_sku(calibrated, capsys, tmp_path):
    code, out, _ = call(capsys, *CALIBRATE, "-o", "lab.yaml", "--points", "points.jsonl")
    assert code == 0
    assert "Topology(world_size=4" in out
    assert find_hardware("./lab.yaml").ddr_mem_bw == pytest.approx(5e6, rel=0.03)
    lines = (tmp_path / "points.jsonl").read_text().splitlines()
    assert {"case", "seconds"} == set(json.loads(lines[0]))


def test_a_calibration_can_be_had_as_json(calibrated, capsys):
    _, out, _ = call(capsys, *CALIBRATE, "-o", "lab.yaml", "--json")
    assert "ddr_mem_bw" in json.loads(out)["constants"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-o", "lab.json"), "must end in .yaml"),
        (("-o", "lab.yaml", "--like", "h100"), "is not cpu hardware"),
        (("-o", "lab.yaml", "--like", "nothing"), "no hardware is called"),
        (("-o", "lab.yaml", "--name", "a/b"), "can't be called"),
        (("-o", "lab.yaml", "--repetitions", "0"), "--repetitions must be at least 1"),
        (("-o", "lab.yaml", "--model", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_cannot_be_calibrated_is_one_line(calibrated, capsys, words, told):
    code, out, errors = call(capsys, *CALIBRATE, *words)
    assert (code, out) == (1, "")
    assert told in errors
    assert errors.count("\n") == 1


def test_a_calibration_is_kept_although_nobody_reads_the_report(
    calibrated, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    code, _, _ = call(capsys, *CALIBRATE, "-o", "lab.yaml", "--points", "points.jsonl")
    assert code == 141
    assert find_hardware("./lab.yaml").ddr_mem_bw == pytest.approx(5e6, rel=0.03)
    assert (tmp_path / "points.jsonl").exists()


def test_a_calibration_replaces_an_earlier_one(calibrated, capsys):
    words = (*CALIBRATE, "-o", "lab.yaml", "--points", "points.jsonl")
    assert [call(capsys, *words)[0] for _ in range(2)] == [0, 0]
