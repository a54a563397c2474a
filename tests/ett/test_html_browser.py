"""The page about a job in a real browser, on a phone and on a screen."""

import pytest

from fastplan.ett.building import load
from fastplan.ett.html import html_report
from tests.ett.runs import Rank
from tests.ett.test_html import NASTY


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A job whose imports take longer than all else, as they do."""
    folder = tmp_path_factory.mktemp("job")
    for attempt in range(2):
        for number in range(4):
            begin = 100.0 * attempt
            rank = Rank(
                folder / "runs", number, world=4, attempt=attempt, begin=begin, recorded=begin + 40
            )
            rank.do("plan", 0.4).do("dmp", 0.6).do(NASTY + "long " * 20, 0.2)
            rank.steps(10 * attempt, 10 * attempt + 12, 1.0)
            if attempt == 0:
                rank.recorder.failure("a cause that has a word of " + "x" * 200)
            else:
                rank.recorder.stop()
    page = folder / "ett.html"
    page.write_text(html_report(load(folder / "runs")), encoding="utf-8")
    return page


@pytest.fixture(params=[400, 1400])
def page(browser, path, request):
    opened = browser.open(path, width=request.param)
    yield opened
    assert opened.complaints() == []
    opened.close()


def each(selector, value):
    """A list of a value of all elements that a selector finds."""
    return f"[...document.querySelectorAll({selector!r})].map((each) => {value})"


def widest(page, phase):
    """The width of the widest rectangle of a phase among the starts."""
    widths = each(f"details svg.lane rect.p-{phase}", "each.getBoundingClientRect().width")
    return page.run(f"Math.max(0, ...{widths})")


def choose(page, name):
    page.run(f"document.getElementById({name!r}).click()")


def test_nothing_is_wider_than_the_window(page):
    for name in ("zoom-1", "zoom-16", "imports-hidden", "imports-shown"):
        choose(page, name)
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_bars_are_long_enough_to_see(page):
    widths = each("svg.lane", "each.getBoundingClientRect().width")
    assert page.run(f"Math.min(...{widths}.filter(Boolean))") >= 150


def test_text_is_large_enough_to_read(page):
    sizes = each("span, td, p, li, label", "parseFloat(getComputedStyle(each).fontSize)")
    assert page.run(f"Math.min(...{sizes})") >= 11


def test_zoom_makes_phases_wider_within_their_own_scroll_area(page):
    before = widest(page, "plan")
    choose(page, "zoom-16")
    assert widest(page, "plan") > 10 * before
    scrolls = each(".scroll", "each.scrollWidth > 5 * each.clientWidth")
    assert page.run(f"{scrolls}.some(Boolean)")
    choose(page, "zoom-1")
    assert widest(page, "plan") == pytest.approx(before)


def test_imports_can_be_hidden_so_that_plan_and_dmp_are_no_slivers(page):
    lane = page.run("document.querySelector('details svg.lane').getBoundingClientRect().width")
    assert widest(page, "plan") < 0.05 * lane
    choose(page, "imports-hidden")
    assert widest(page, "imports") == 0
    assert widest(page, "plan") > 0.15 * lane
    assert widest(page, "dmp") > 0.2 * lane
    choose(page, "imports-shown")
    assert widest(page, "imports") > 0.9 * lane


def test_choices_can_be_made_with_the_keyboard(page):
    page.run("document.getElementById('zoom-1').focus()")
    before = widest(page, "plan")
    page.press("ArrowRight")
    assert page.run("document.getElementById('zoom-4').checked")
    assert widest(page, "plan") > 3 * before
