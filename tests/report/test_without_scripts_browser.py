"""Pages in a real browser that runs no scripts: their figures are there as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastplan.ett.fleet.page import fleet_page
from fastplan.report.html import html_report
from fastplan.sweep.html import sweep_page
from fastplan.sweep.rows import SweepResult
from tests.ett.fleet.samples import row as job
from tests.report.browser import Browser, find_browser
from tests.report.samples import criteo
from tests.sweep.samples import row as cell

PROGRAM = find_browser()
if PROGRAM is None:
    pytest.skip(
        "no Chromium found; install one, or name it in FASTPLAN_TEST_BROWSER",
        allow_module_level=True,
    )
EVIL = "a\nb\x1b[2J\u202e<b>"
# A page, and a line of its text.
PAGES: dict[str, tuple[Callable[[], str], str]] = {
    "fleet": (
        lambda: fleet_page([job(0, job=EVIL), job(1)]),
        r"  a\x0ab\x1b[2J\u202e<b>  3.3 min",
    ),
    "sweep": (lambda: sweep_page(SweepResult(rows=(cell(sku=EVIL),))), r"  a\x0ab\x1b[2J\u202e<b>"),
    "plan": (lambda: html_report([criteo()]), "rating   0.651 ms est."),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser(PROGRAM)
    yield made
    made.close()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_without_scripts_shows_its_figures_line_by_line(
    browser: Browser, tmp_path: Path, name: str, width: int
) -> None:
    render, line = PAGES[name]
    path = tmp_path / "page.html"
    path.write_text(render(), encoding="utf-8")
    page = browser.open(path, width=width, scripts=False)
    try:
        text = page.run("document.querySelector('noscript pre').innerText")
        assert any(each.startswith(line) for each in text.splitlines()), text
        assert "runs no scripts" in page.run("document.body.innerText")
        assert page.run("document.documentElement.scrollWidth") <= width
        edge = "document.querySelector('noscript pre').getBoundingClientRect()"
        assert 0 < page.run(f"{edge}.left") < page.run(f"{edge}.right") < width
    finally:
        page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_with_scripts_has_no_text_instead(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGES[name][0](), encoding="utf-8")
    page = browser.open(path)
    try:
        assert "runs no scripts" not in page.run("document.body.innerText")
    finally:
        page.close()
