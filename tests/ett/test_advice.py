"""Advice: the longest phases, and what shortens each of them."""

import re
from pathlib import Path

import pytest

from fastplan.ett.advice import _ADVICE, advice
from fastplan.ett.arithmetic import read_report
from fastplan.ett.building import load
from fastplan.ett.html import html_report
from fastplan.ett.phases import NAMES, Kind
from fastplan.ett.text import report_json, report_text
from tests.ett.runs import Rank

ROOT = Path(__file__).parents[2]


def job(directory, *phases, steps=10, **plan):
    rank = Rank(directory)
    if plan:
        rank.do("plan", 30.0, **plan)
    for name, seconds in phases:
        rank.do(name, seconds)
    rank.steps(1, steps, 1.0).recorder.stop()
    return read_report(directory)


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("imports", "fastplan run"),
        ("plan", "plan cache"),
        ("compile", "start from a bundle"),
        ("recompile", "TORCH_COMPILE_DYNAMIC_SOURCES"),
        ("shard", "fastplan.patch(init=True)"),
        ("checkpoint_save", "async_save; `fastplan ett interval`"),
        ("checkpoint_stage", "`fastplan ett interval`"),
        ("restore", "faster file system"),
        ("process_group", "slowest"),
        ("data_wait", "data loader"),
        ("my phase", "the job's own code"),
    ],
)
def test_the_largest_phase_is_named_with_what_shortens_it(tmp_path, phase, words):
    report = job(tmp_path, (phase, 50.0), ("optimizer", 0.001))
    first = advice(report)[0]
    assert first.phases == (phase,)
    assert first.share == pytest.approx(50 / 60.001)
    assert words in first.text
    assert f"{first.title}: {first.text}" in " ".join(report_text(report).split())
    assert report_json(report)["advice"][0]["text"] == first.text
    assert len(advice(report)) == 1


def test_phases_that_one_thing_shortens_are_added_up(tmp_path):
    first, second = advice(job(tmp_path, ("shard", 6.0), ("optimizer", 9.0), ("dmp", 5.0)))
    assert first.phases == ("dmp", "shard")
    assert first.title == "DMP, other, DMP shard: 11.0 s (36.7 %)"
    assert second.phases == ("optimizer",)


def test_advice_on_planning_depends_on_the_planner(tmp_path):
    kinds = {"torchrec": {}, "native": {"cache": "miss"}, "mixed": {"cache": "hit"}}
    texts = [advice(job(tmp_path / e, engine=e, **more))[0].text for e, more in kinds.items()]
    assert "plan with fastplan's planner" in texts[0]
    assert texts[1].startswith("give the planner a plan cache")
    assert "from the cache already" in texts[2]


def test_a_bundle_is_not_advised_to_a_job_that_has_one(tmp_path):
    text = advice(job(tmp_path, ("bundle", 1.0), ("compile", 50.0)))[0].text
    assert "only the first start compiles" in text


def test_lost_work_names_the_interval_that_would_have_been_best(tmp_path):
    first = Rank(tmp_path).steps(1, 10, 1.0).do("checkpoint_save", 1.0)
    first.recorder.checkpoint(10)
    first.steps(11, 200, 1.0).recorder.failure("killed")
    Rank(tmp_path, attempt=1, begin=210.0).do("restore", 5.0).steps(11, 20, 1.0).recorder.stop()
    (found, *_) = advice(read_report(tmp_path))
    assert found.phases == ("lost",)
    assert re.match(r"save a checkpoint every 2\d\.\d s instead of every 3\.5 min", found.text)


def test_a_job_that_only_trains_needs_no_advice(tmp_path):
    Rank(tmp_path).steps(1, 9, 1.0).recorder.stop()
    report = read_report(tmp_path)
    assert advice(report) == []
    assert "what would shorten it" not in report_text(report)


def test_the_page_has_it(tmp_path):
    job(tmp_path, ("imports", 50.0))
    text = html_report(load(tmp_path))
    assert "<b>Python and imports: 50.0 s (83.3 %)</b>: start the job with `fastplan run" in text


def test_pages_that_advice_names_exist(tmp_path):
    report = job(tmp_path, ("imports", 1.0))
    texts = [text(report) for text in _ADVICE.values()]
    pages = {page for text in texts for page in re.findall(r"docs/[\w-]+\.md", text)}
    assert len(pages) >= 3
    assert [page for page in pages if not (ROOT / page).exists()] == []


def test_advice_is_about_phases_that_exist():
    named = {name for names in _ADVICE for name in names}
    assert named <= NAMES.keys()
    assert not any(NAMES[name].kind is Kind.TRAIN for name in named)
