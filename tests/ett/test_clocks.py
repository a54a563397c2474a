"""Hosts with different clocks."""

import pytest

from fastplan.ett.arithmetic import read_report
from tests.ett.runs import Rank


def close(value):
    return pytest.approx(value, rel=0, abs=1e-9)


@pytest.mark.parametrize("skew", [-3600.0, -0.5, 0.2, 7.0])
def test_clocks_of_hosts_may_differ(tmp_path, skew):
    for number, host in enumerate("ab"):
        rank = Rank(tmp_path, number, world=2, host=host, skew=skew if host == "b" else 0.0)
        rank.do("process_group", 1.0).do("plan" if number == 0 else "broadcast", 3.0)
        rank.steps(0, 1000, 0.01)
        rank.recorder.stop()
    report = read_report(tmp_path)
    assert report.seconds == pytest.approx(14.01, abs=1e-6)
    assert report.phases["plan"] == pytest.approx(3.0, abs=1e-6)
    assert report.time_to_start == pytest.approx(4.0, abs=1e-6)
    (note,) = [note for note in report.notes if "clock" in note]
    assert f"{abs(skew):.3f} s {'ahead' if skew > 0 else 'behind'}" in note


def test_clocks_that_differ_by_less_than_steps_do_are_left_alone(tmp_path):
    for number, host in enumerate("ab"):
        rank = Rank(tmp_path, number, world=2, host=host, skew=0.0005 * number)
        rank.steps(0, 600, 0.01).recorder.stop()
    assert not any("clock" in note for note in read_report(tmp_path).notes)


def test_ranks_of_one_host_share_a_clock_even_if_its_time_of_day_was_set_meanwhile(tmp_path):
    Rank(tmp_path, 0, world=2).do("plan", 5.0).steps(0, 9, 1.0).recorder.stop()
    late = Rank(tmp_path, 1, world=2, skew=900.0)
    late.do("broadcast", 5.0).steps(0, 9, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert report.seconds == close(15.0)
    assert report.phases["plan"] == close(5.0)


def test_hosts_without_a_common_step_are_named(tmp_path):
    for number, host in enumerate("ab"):
        Rank(tmp_path, number, world=2, host=host).do("plan", 1.0).recorder.stop()
    assert any("hosts b: no step in common" in note for note in read_report(tmp_path).notes)
