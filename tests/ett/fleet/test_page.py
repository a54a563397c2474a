"""The page of a fleet: what it holds, what it links to, and that any name is safe in it."""

import json
import re

import pytest

from bench.fleet_jobs import Fleet, write_jobs
from fastplan.ett.fleet import summary
from fastplan.ett.fleet.jobs import FleetJob
from fastplan.ett.fleet.page import fleet_page, page_data, write_pages
from fastplan.ett.fleet.places import Walk
from fastplan.ett.fleet.read import read_place
from fastplan.ett.fleet.summary import group_by_label, shown_names, summarise, worst_jobs
from fastplan.ett.fleet.text import fleet_text
from tests.ett.fleet.samples import row
from tests.report.pages import Page

NASTY = "</script><script>alert(1)</script>\x1b[31m\u202e&amp;"


def test_figures_of_a_fleet_are_weighted_by_time():
    jobs = [row(0), row(1, seconds=3000.0, train_s=600.0, ett=0.2, failures=2)]
    summary = summarise(jobs)
    assert summary.ett == 1400 / 4000
    assert (summary.failures, summary.failing_jobs) == (2, 1)
    assert [(loss.phase, loss.seconds, loss.jobs) for loss in summary.phases] == [
        ("compile", 280.0, 2),
        ("plan", 120.0, 2),
    ]
    assert summary.time_to_start.median == 100.5
    assert [day.name for day in summary.days] == ["2026-01-01", "2026-01-02"]
    assert worst_jobs(jobs, 1) == [jobs[1]]


def test_each_phase_is_classified_once_and_not_for_every_job(monkeypatch):
    asked, is_training = [], summary.is_training
    monkeypatch.setattr(
        summary, "is_training", lambda name: asked.append(name) or is_training(name)
    )
    assert "training" not in {loss.phase for loss in summarise([row(i) for i in range(9)]).phases}
    assert len(asked) == len({*asked}) > 1


def test_groups_have_their_own_figures():
    jobs = [row(i, labels={"team": "ab"[i % 2]} if i else {}) for i in range(4)]
    found = {group.name: group.jobs for group in group_by_label(jobs, "team")}
    assert found == {"(none)": 1, "a": 1, "b": 2}


def test_the_text_names_phases_and_worst_jobs():
    shown = fleet_text([row(0), row(1, job=NASTY)], ["kind"])
    assert "2 jobs, 33.3 min, 2026-01-01 to 2026-01-02" in shown
    assert re.search(r"compile +4.7 min +14.0 % +2 +2.3 min", shown)
    assert "\x1b" not in shown


def test_jobs_that_share_a_name_are_shown_with_as_much_of_their_path_as_needed():
    same = ["/a/x/r.log", "/a/y/r.log", "/b/y/r.log"]
    jobs = [row(i, job="r.log", source=source) for i, source in enumerate(same)]
    jobs += [row(4, job="train", source="/c/1"), row(5, job="train", source="/d/1")]
    names = shown_names([*jobs, row(6)])
    shown = ["a/x/r.log", "a/y/r.log", "b/y/r.log", "train (c/1)", "train (d/1)", "job6"]
    assert list(names.values()) == shown
    assert all(name in fleet_text(jobs, ()) for name in shown[:5])


def test_a_page_needs_nothing_else_and_any_name_is_safe():
    page = fleet_page([row(0, job=NASTY, labels={NASTY: NASTY}, phases={NASTY: 1.0}), row(1)])
    parsed = Page(page)
    assert not parsed.broken
    assert page.count("<script") == 2  # the data and the page's own
    assert "alert(1)</script>" not in page
    assert not re.search(r"(src|href)=\"(?!data:,)", page)


def test_a_reader_without_scripts_gets_the_text_line_by_line():
    jobs = [row(0, job=f"a\n{NASTY}"), row(1)]
    text = Page(fleet_page(jobs)).text_of("pre")
    assert text == fleet_text(jobs, ())


def test_the_data_has_every_job_with_its_labels():
    jobs = [row(0, labels={"team": "a"}), row(1, labels={"team": "b"}, times_to_recover_s=[5.0])]
    data = json.loads(json.dumps(page_data(jobs, {"/runs/1": "x/1.html"})))
    assert data["labels"] == [{"name": "team", "values": ["a", "b"]}]
    assert data["jobs"]["labels"] == [[0], [1]]
    assert data["jobs"]["link"] == [None, "x/1.html"]
    assert data["jobs"]["recover"] == [[], [5.0]]
    names = [phase["title"] for phase in data["phases"]]
    assert names == ["plan", "compile", "training"]


def test_the_worst_jobs_get_pages_of_their_own(tmp_path):
    runs = tmp_path / "runs"
    write_jobs(runs, 0, 3, Fleet(ranks=2))
    jobs = [job for found in Walk([str(runs)], {}) for job in read_place(found).jobs]
    assert all(isinstance(job, FleetJob) for job in jobs)
    path = tmp_path / "my fleet.html"
    assert write_pages(jobs, str(path), 2) == [str(path), str(tmp_path / "my fleet_jobs")]
    assert sorted(p.name for p in (tmp_path / "my fleet_jobs").iterdir()) == [
        "001.html",
        "002.html",
    ]
    assert "my%20fleet_jobs/002.html" in path.read_text()


@pytest.mark.parametrize("gone", [False, True])
def test_a_fleet_without_recordings_on_disk_has_no_pages(tmp_path, gone):
    job = row(kind="fastplan" if gone else "mllog", place=str(tmp_path / "gone"))
    assert write_pages([job], str(tmp_path / "f.html"), 5) == [str(tmp_path / "f.html")]
