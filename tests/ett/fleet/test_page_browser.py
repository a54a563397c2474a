"""The page of a fleet in a real browser, on a phone and on a desk."""

import pytest

from fastplan.ett.fleet.page import fleet_page
from tests.ett.fleet.samples import row
from tests.ett.fleet.test_page import NASTY


def fleet(count=60):
    """Jobs of three teams; team c loses the most."""
    found = []
    for i in range(count):
        worse = 300.0 if i % 3 == 2 else 0.0
        found.append(
            row(
                i,
                labels={"team": "abc"[i % 3], "model": "m"},
                train_s=800.0 - worse,
                phases={"plan": 60.0 + worse, "compile": 140.0, "training": 800.0 - worse},
                failures=i % 5 == 0,
                times_to_recover_s=[30.0 + i] if i % 5 == 0 else [],
            )
        )
    return found


@pytest.fixture
def opened(browser, tmp_path):
    pages = []

    def open_page(jobs, width, links=None):
        path = tmp_path / f"{len(pages)}.html"
        path.write_text(fleet_page(jobs, links), encoding="utf-8")
        pages.append(browser.open(path, width=width))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_and_complains_about_nothing(opened, width):
    page = opened([*fleet(), row(99, job=NASTY * 5, phases={"x" * 300: 5.0})], width)
    assert page.complaints() == []
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.texts("#job-count") == ["61 of 61"]
    assert page.run("document.querySelectorAll('#over-time circle').length") == 61
    # Text on a phone is no smaller than 10 px once the picture is scaled.
    smallest = (
        "Math.min(...[...document.querySelectorAll('svg text')].map((t) => "
        "t.getBoundingClientRect().height))"
    )
    assert page.run(smallest) >= 10


@pytest.mark.parametrize("width", [400, 1400])
def test_filters_change_every_figure(opened, width):
    page = opened(fleet(), width)
    assert page.texts("#tiles .value")[0] == "70.0 %"
    page.run(
        "(() => { const box = document.querySelector('select[aria-label=team]'); box.value = '2'; "
        "box.dispatchEvent(new Event('change')); })()"
    )
    assert page.texts("#job-count") == ["20 of 60"]
    assert page.texts("#tiles .value")[0] == "50.0 %"
    assert page.texts("#phases .phase span:first-child")[0] == "plan"
    page.run(
        "(() => { byId = (id) => document.getElementById(id); byId('since').value = '2026-01-10';"
        "byId('until').value = '2026-01-20'; "
        "byId('until').dispatchEvent(new Event('change')); })()"
    )
    assert page.texts("#job-count") == ["3 of 60"]


def test_the_worst_jobs_link_to_their_pages(opened):
    page = opened(fleet(6), 1400, {"/runs/2": "jobs/001.html"})
    links = page.run(
        "[...document.querySelectorAll('#worst a')].map((a) => a.getAttribute('href'))"
    )
    assert links == ["jobs/001.html"]
    assert page.texts("#worst td a") == ["job2"]


def test_jobs_without_dates_and_starts_are_shown(opened):
    page = opened([row(begin=None, time_to_start_s=None)], 400)
    assert page.complaints() == []
    assert page.texts("#over-time") == ["No job has a date."]


def test_ten_thousand_jobs_are_filtered(opened):
    page = opened(fleet(10_000), 1400)
    page.run(
        "(() => { const box = document.querySelector('select[aria-label=team]'); box.value = '1'; "
        "box.dispatchEvent(new Event('change')); })()"
    )
    assert page.texts("#job-count") == ["3,333 of 10,000"]


def test_a_few_far_values_share_the_last_bar(opened):
    """One start of 3 hours must not press all others into one bar."""
    jobs = [row(i, time_to_start_s=100.0 + i) for i in range(200)]
    page = opened([*jobs, row(200, time_to_start_s=10_800.0)], 1400)
    bars = page.texts("#starts rect title")
    assert sum(not bar.endswith(": 0 jobs") for bar in bars) == len(bars) == 25
    assert bars[-1].endswith("to 3.0 h: 5 jobs")
    assert sum(int(bar.split(": ")[1].split()[0]) for bar in bars) == 201


def test_a_figure_that_all_jobs_share_is_said_in_words(opened):
    page = opened([row(i, failures=0, times_to_recover_s=[]) for i in range(3)], 400)
    assert page.texts("#failures p") == ["0 for all 3 jobs."]
    assert page.texts("#tiles .note")[3:] == ["no failure", "in no job"]


def test_jobs_of_the_same_name_are_told_apart(opened):
    jobs = [
        row(i, job="result.log", source=f"/logs/{name}/x/result.log") for i, name in enumerate("ab")
    ]
    page = opened([*jobs, row(2, train_s=999.0)], 400)
    assert page.texts("#worst td:first-child") == ["a/x/result.log", "b/x/result.log", "job2"]


@pytest.mark.parametrize("width", [400, 1400])
def test_every_figure_of_the_worst_jobs_can_be_seen(opened, width):
    page = opened([row(i, job=f"{'a_long_name_' * 8}{i}") for i in range(3)], width)
    edges = (
        "[...document.querySelectorAll('#worst th, #worst td')]"
        ".map((cell) => cell.getBoundingClientRect())"
    )
    assert page.run(f"Math.max(...{edges}.map((r) => r.right))") <= width
    # A name takes at most three lines.
    assert page.run(f"Math.max(...{edges}.map((r) => r.height))") < 75
