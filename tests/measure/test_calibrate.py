"""Micro-benchmarks on real gloo processes."""

import pytest

from fastplan.measure import calibrate as calibrate_module
from fastplan.measure.calibrate import calibrate
from fastplan.measure.cases import COLLECTIVES, COPY, LOOKUP, Sizes, cases
from fastplan.measure.failures import Failure
from fastplan.measure.settings import LaunchSettings, MeasureError

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
