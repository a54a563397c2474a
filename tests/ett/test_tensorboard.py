"""TensorBoard scalars."""

import sys
import types

import pytest

from fastplan.ett.arithmetic import report_on
from fastplan.ett.tensorboard import NoTensorBoard, scalars, write_scalars
from tests.ett.runs import Rank


@pytest.fixture
def report(tmp_path):
    Rank(tmp_path, launched=0.0).do("plan", 4.0).steps(1, 6, 1.0).recorder.failure("killed")
    Rank(tmp_path, attempt=1, begin=12.0).do("plan", 2.0).steps(4, 9, 1.0).recorder.stop()
    return report_on(tmp_path)


def test_there_is_a_scalar_per_attempt(report):
    found = {(tag, number): value for tag, value, number in scalars(report)}
    assert found["ett/percent", 0] == pytest.approx(100 * 3 / 10)
    assert found["ett/percent", 1] == pytest.approx(100 * report.ett)
    assert found["ett/time_to_start_seconds", 0] == pytest.approx(4.0)
    assert found["ett/time_to_recover_seconds", 1] == pytest.approx(4.0)
    assert found["ett/failures", 1] == 1
    assert found["ett_phase_seconds/plan", 0] == pytest.approx(4.0)
    assert found["ett_phase_seconds/lost", 0] == pytest.approx(3.0)


def test_without_tensorboard_the_error_says_what_to_install(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(NoTensorBoard, match="pip install tensorboard"):
        write_scalars(report, tmp_path / "board")


def test_torch_writes_them(report, tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, log_dir):
            written.append(log_dir)

        def add_scalar(self, tag, value, step):
            written.append((tag, value, step))

        def close(self):
            written.append("closed")

    module = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    write_scalars(report, tmp_path / "board")
    assert written == [str(tmp_path / "board"), *scalars(report), "closed"]


def test_event_files_hold_them(report, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write_scalars(report, tmp_path / "board")
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    assert [event.step for event in read.Scalars("ett/percent")] == [0, 1]


def test_names_that_no_event_file_can_hold_are_written_as_escapes(tmp_path):
    rank = Rank(tmp_path)
    rank.do("odd \udc80", 5.0).steps(0, 3, 1.0)
    rank.recorder.stop()
    tags = {tag for tag, _, _ in scalars(report_on(tmp_path))}
    assert r"ett_phase_seconds/odd \udc80" in tags
