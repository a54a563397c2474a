"""Short phases after the last step do not belong to the training before them."""

import pytest

from fastplan.ett.arithmetic import read_report
from fastplan.ett.events import Frame
from tests.ett.runs import Rank, ns


def close(value):
    return pytest.approx(value, rel=0, abs=1e-9)


@pytest.fixture
def trained(tmp_path):
    """Five steps of a fifth of a second, then two phases too short for lines of their own."""
    rank = Rank(tmp_path).steps(0, 4, 0.2)
    return rank.short("publish", 0.8).short("evaluation", 0.7).wait(0.1)


def of_kind(rank, *kinds):
    return [entry for entry in rank.lines() if entry["e"] in kinds]


def test_they_are_separate_from_training_at_the_end(trained, tmp_path):
    trained.recorder.stop()
    report = read_report(tmp_path)
    assert report.productive == close(1.0)
    assert report.phases == {
        "training": close(1.0),
        "publish": close(0.8),
        "evaluation": close(0.7),
        "ending": close(0.1),
    }


def test_they_are_separate_from_training_after_a_checkpoint(trained, tmp_path):
    trained.recorder.checkpoint(4)
    trained.short("publish", 0.3).recorder.stop()
    report = read_report(tmp_path)
    assert report.productive == close(1.0)
    assert report.phases["publish"] == close(1.1)


@pytest.mark.parametrize("ended", [True, False])
def test_they_are_separate_from_training_at_a_failure(trained, tmp_path, ended):
    trained.recorder.checkpoint(4)
    trained.short("publish", 0.3).recorder.failure("out of memory")
    if ended:
        trained.recorder.stop()
    report = read_report(tmp_path)
    assert report.productive == close(1.0)
    assert report.phases["publish"] == close(1.1)
    assert report.phases["stalled"] == close(0.1)


@pytest.mark.parametrize("last", ["nothing", "a phase", "a checkpoint"])
def test_a_kill_takes_none_of_them_out_of_training(trained, tmp_path, last):
    if last == "a phase":
        trained.phase("checkpoint_save").__enter__()
    elif last == "a checkpoint":
        trained.recorder.checkpoint(4)
    report = read_report(tmp_path)
    known = 0.2 if last == "nothing" else 1.0  # its last steps had not been written yet
    assert report.productive == close(known)


def test_they_belong_to_the_steps_if_training_continues(trained, tmp_path):
    trained.recorder.checkpoint(4)
    trained.steps(5, 9, 0.2).recorder.stop()
    report = read_report(tmp_path)
    assert report.productive == close(2.1)
    assert (report.phases["publish"], report.phases["evaluation"]) == (close(0.8), close(0.7))
    assert "ending" not in report.phases


def test_they_belong_to_the_repeated_steps_if_training_goes_back(trained):
    trained.steps(2, 3, 0.2).recorder.stop()
    first, before, after, _ = of_kind(trained, "steps")
    assert "in" not in first
    assert "in" not in before
    assert (after["first"], after["in"]["publish"]) == (2, [1, ns(0.8)])


def test_a_short_phase_around_steps_is_a_part_of_their_line(tmp_path):
    rank = Rank(tmp_path).steps(0, 0, 0.1)
    frame = Frame("epoch")
    rank.recorder.begin(frame)
    rank.steps(1, 3, 0.1)
    rank.recorder.end(frame)
    rank.recorder.stop()
    assert of_kind(rank, "steps", "rest")[-1]["in"] == {"epoch": [1, ns(0.3)]}
