"""Micro-benchmarks on real gloo processes."""

import json

import pytest

from fastplan.cli.main import main
from fastplan.measure import calibrate as calibrate_module
from fastplan.measure.calibrate import CalibratedSku, calibrate, sku_yaml
from fastplan.measure.cases import COLLECTIVES, COPY, LOOKUP, Sizes, cases
from fastplan.measure.failures import Failure
from fastplan.measure.settings import LaunchSettings, MeasureError
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME
from fastplan.spec.hardware import find_hardware
from tests.measure.samples import model

SIZES = Sizes((16,), (16, 32), (1, 3), 100, (1 << 12, 1 << 13))
GROUP = LaunchSettings(device="cpu", ranks_per_host=2, timeout=120)


@pytest.fixture(scope="module")
def calibrated():
    return calibrate(GROUP, SIZES, repetitions=2)


def test_every_case_is_measured(calibrated):
    assert [point.case for point in calibrated.points] == cases("cpu", 2, 2, SIZES)
    kinds = {point.case.kind for point in calibrated.points}
    assert kinds == {COPY, LOOKUP, *COLLECTIVES}


def test_every_work_has_a_time(calibrated):
    for point in calibrated.points:
        assert point.seconds
        assert all(seconds > 0 for seconds in point.seconds.values())
        if point.case.kind == LOOKUP:
            assert set(point.seconds) == {"forward", "backward"}


def test_so_few_sizes_determine_no_exchange(calibrated):
    assert "span a factor of 2" in calibrated.found.left_out["intra_host_bw"]


@pytest.fixture(scope="module")
def sku_file(calibrated, tmp_path_factory):
    sku = CalibratedSku(
        name="lab",
        like="torchrec-cpu",
        group=GROUP,
        calibrated=calibrated,
        host_memory=64 << 30,
        device_memory=None,
    )
    path = tmp_path_factory.mktemp("sku") / "lab.yaml"
    path.write_text(sku_yaml(sku))
    return path


def test_real_ranks_give_every_constant_of_the_hardware_costs_a_source(sku_file):
    found = find_hardware(str(sku_file)).costs
    assert set(found) == set(CONSTANTS_BY_NAME)
    assert all(figure.source and figure.sku == "lab" for figure in found.values())
    assert any(figure.n > 0 for figure in found.values())


def test_a_real_calibration_plans_with_hardware_costs(sku_file, tmp_path, capsys):
    (tmp_path / "model.json").write_text(json.dumps(model()))
    words = ("--sku", str(sku_file), "--costs", "hardware", "--json")
    code = main(("plan", str(tmp_path / "model.json"), *words))
    out, errors = capsys.readouterr()
    assert code == 0, errors
    told = json.loads(out)
    assert (told["notes"]["costs"], told["notes"]["sku"]) == ("hardware", "lab")
    assert told["step"]["ms"] > 0


def test_a_rank_that_fails_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr(
        calibrate_module, "run_group", lambda *_: Failure(3, 0, (1,), "killed by SIGKILL")
    )
    with pytest.raises(MeasureError, match="rank 1: killed by SIGKILL"):
        calibrate(GROUP, SIZES)


def test_nothing_to_read_is_an_error_but_on_other_hosts_than_rank_0_s(monkeypatch):
    monkeypatch.setattr(calibrate_module, "run_group", lambda *_: None)
    with pytest.raises(MeasureError, match="without a result"):
        calibrate(GROUP, SIZES)
    assert calibrate(LaunchSettings(device="cpu", ranks_per_host=1, hosts=2), SIZES) is None
