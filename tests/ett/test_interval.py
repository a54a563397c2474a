"""The checkpoint interval that wastes least."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.cli.main import main
from fastplan.ett.arithmetic import read_report
from fastplan.ett.interval import FailureModel, interval_json, model_of_job
from fastplan.ett.interval_text import ASSUMPTIONS, curve_svg, interval_html, interval_text
from fastplan.report.terminal import Style, display_width
from tests.ett.runs import Rank

models = st.builds(
    FailureModel,
    save=st.floats(0.01, 600.0),
    between_failures=st.floats(600.0, 1e7),
    recover=st.floats(0.0, 3600.0),
)


def simulated_waste(model, interval, segments=20_000):
    """The wasted share of a job that is played out, failure by failure."""
    draw = random.Random(7).expovariate
    rate, clock, failure = 1 / model.between_failures, 0.0, 0.0
    failure = draw(rate)
    for _ in range(segments):
        while clock + interval + model.save > failure:
            clock = failure
            failure = clock + draw(rate)
            while clock + model.recover > failure:
                clock, failure = failure, failure + draw(rate)
            clock += model.recover
        clock += interval + model.save
    return 1 - segments * interval / clock


@pytest.mark.parametrize("interval", [100.0, 700.0, 5000.0])
def test_the_expected_waste_is_that_of_a_played_out_job(interval):
    model = FailureModel(save=30.0, between_failures=4000.0, recover=500.0)
    assert model.waste(interval) == pytest.approx(simulated_waste(model, interval), rel=0.03)


@given(models)
def test_no_other_interval_wastes_less(model):
    least = model.waste(model.best)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert model.waste(model.best * factor) >= least - 1e-12


@given(models)
def test_parts_add_up_and_are_no_less_than_nothing(model):
    for interval in model.curve():
        parts = model.parts(interval)
        assert min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(model.waste(interval), abs=1e-9)


def test_the_approximations_are_good_where_saves_are_short():
    model = FailureModel(save=60.0, between_failures=28_800.0)
    assert model.young == pytest.approx(math.sqrt(2 * 60 * 28_800))
    assert model.daly == pytest.approx(model.best, rel=1e-4)
    long = FailureModel(save=100.0, between_failures=40.0)
    assert long.daly == 40.0
    assert long.best < 40.0


def test_the_time_to_recover_does_not_change_the_best_interval():
    base = FailureModel(save=60.0, between_failures=28_800.0)
    other = FailureModel(save=60.0, between_failures=28_800.0, recover=3000.0)
    assert other.best == base.best
    assert other.waste(other.best) > base.waste(base.best)


def test_an_upload_delays_a_checkpoint_and_limits_the_interval():
    model = FailureModel(save=1.0, between_failures=28_800.0, upload=900.0)
    assert model.best == 900.0
    assert min(model.curve()) == 900.0
    assert min(model.curve(), key=model.waste) == 900.0
    assert model.waste(2000.0) > FailureModel(save=1.0, between_failures=28_800.0).waste(2000.0)
    assert model.parts(2000.0)["recovering"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("save", 0.0), ("save", -1.0), ("between_failures", math.inf), ("recover", math.nan)],
)
def test_what_makes_no_sense_is_named(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a number"):
        FailureModel(**{"save": 1.0, "between_failures": 100.0, name: value})


def test_a_job_that_can_not_get_on_wastes_everything():
    model = FailureModel(save=1.0, between_failures=1.0)
    assert model.waste(5000.0) == 1.0
    assert model.parts(5000.0)["repeating"] == 1.0


def recorded(directory):
    first = Rank(directory, launched=0.0)
    for begin in (1, 11, 21):
        first.steps(begin, begin + 9, 1.0).do("checkpoint_save", 2.0)
        first.recorder.checkpoint(begin + 9)
    first.steps(31, 34, 1.0).recorder.failure("killed")
    Rank(directory, attempt=1, begin=60.0).do("restore", 5.0).steps(31, 46, 1.0).recorder.stop()
    return read_report(directory)


def test_a_recorded_job_says_all_of_it(tmp_path):
    report = recorded(tmp_path)
    assert (report.checkpoints.count, report.checkpoints.blocking) == (3, pytest.approx(6.0))
    found = model_of_job(report)
    assert found["save"] == pytest.approx(2.0)
    assert found["between_failures"] == pytest.approx(report.seconds)
    assert found["interval"] == pytest.approx(50.0 / 3)
    assert found["step"] == pytest.approx(1.0)
    assert "upload" not in found


def test_the_upload_of_an_asynchronous_save_is_counted(tmp_path):
    rank = Rank(tmp_path).steps(1, 5, 1.0).do("checkpoint_stage", 0.5)
    rank.recorder.add(
        "checkpoint_upload", *(rank._monotonic(s) for s in (5.5, 8.5)), background=True
    )
    rank.recorder.checkpoint(5)
    rank.steps(6, 9, 1.0).recorder.stop()
    saves = read_report(tmp_path).checkpoints
    assert (saves.count, saves.blocking, saves.upload) == (1, 0.5, 3.0)


MODEL = FailureModel(save=60.0, between_failures=28_800.0, recover=600.0, interval=7200.0, step=0.5)


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_text_has_the_curve_and_the_assumptions(width, unicode):
    text = interval_text(MODEL, Style(width=width, unicode=unicode))
    assert text.startswith("save a checkpoint every 30.3 min (3,638 steps): 8.2 % wasted\n")
    assert "now every 2.0 h: 14.6 % wasted, 6.35 points more than necessary" in text
    assert all(words in text for words in ASSUMPTIONS)
    assert unicode or text.isascii()
    table = [line for line in text.splitlines() if line.startswith("  ")]
    assert len(table) == 1 + len(MODEL.curve())
    assert width < 100 or max(map(display_width, table)) <= width


def test_the_page_draws_the_parts_and_both_intervals():
    text = interval_html(MODEL, "<runs>")
    assert "&lt;runs&gt;" in text
    assert "<script" not in text
    svg = curve_svg(MODEL)
    assert svg.count("<polygon") == 3
    assert svg.count("<line") == 2
    assert "best: 30.3 min, 8.2 %" in svg


def test_the_command(tmp_path, capsys):
    recorded(tmp_path / "runs")
    page = tmp_path / "curve.html"
    words = ["ett", "interval", "--from", str(tmp_path / "runs"), "--between-failures", "8h"]
    assert main([*words, "--html", str(page), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["between_failures"] == 28_800.0
    assert found["model"]["save"] == pytest.approx(2.0)
    assert found == json.loads(json.dumps(interval_json(FailureModel(**found["model"]))))
    assert "Checkpoint interval" in page.read_text()


def test_the_command_names_what_is_missing(tmp_path, capsys):
    assert main(["ett", "interval", "--save", "1s"]) == 1
    assert "--between-failures must be given, or a recorded job" in capsys.readouterr().err
    Rank(tmp_path).steps(1, 3, 1.0).recorder.stop()
    assert main(["ett", "interval", "--from", str(tmp_path), "--save", "1s"]) == 1
    assert "--between-failures was not recorded" in capsys.readouterr().err
    assert main(["ett", "interval", "--save", "1s", "--between-failures", "1h", "--now", "0s"]) == 1
    assert "--now must be a number of more than 0" in capsys.readouterr().err
