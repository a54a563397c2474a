"""The page of a sweep in a real browser, on a phone and on a desk."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fastplan.sweep.html import write_page
from fastplan.sweep.plan_files import folder_beside
from fastplan.sweep.rows import Row, SweepResult
from fastplan.sweep.run import run_sweep
from tests.report.browser import Browser, Page
from tests.sweep.samples import Inline, failure, hardware, model, row, sweep, tight, unfit

SAVED = (
    "URL.createObjectURL = (blob) => { window.saved = blob; return 'about:blank'; };"
    "HTMLAnchorElement.prototype.click = function () { window.file = this.download; };"
)


def mixed() -> SweepResult:
    """Two SKUs, two precisions, four sizes: the smallest lack memory, one cell failed."""
    rows = []
    for sku, speed in (("a100", 4.0), ("h100", 1.0)):
        for precision, part in (("fp32", 1.0), ("fp16", 0.5)):
            for ranks in (8, 16, 32, 64):
                place = {"sku": sku, "precision": precision, "world_size": ranks}
                name = f"{len(rows):020}"
                if ranks == 8 and precision == "fp32":
                    rows.append(unfit(id=name, **place))
                elif ranks == 64 and sku == "h100" and precision == "fp16":
                    rows.append(failure(id=name, **place))
                else:
                    rating = speed * part * 80 / ranks
                    size = int(part * 64 * 2**30) + ranks * 2**30
                    rows.append(row(id=name, rating=rating, hbm_bytes=size, **place))
    return SweepResult(rows=tuple(rows), prices={"a100": 1.5, "h100": 3.0})


def long_names() -> SweepResult:
    rows = [
        row(id=f"{i:020}", model="m" * 200, sku=f"{'sku ' * 40}{i}", batch=2**40 + i)
        for i in range(30)
    ]
    return SweepResult(rows=tuple(rows))


def many() -> SweepResult:
    rows = [
        row(id=f"{i:020}", model=f"m{i // 700}", sku=f"s{i // 7 % 100}", world_size=8 << i % 7,
            rating=1.0 + i % 13)
        for i in range(2100)
    ]  # fmt: skip
    return SweepResult(rows=tuple(rows))


CASES = {
    "mixed": mixed,
    "long": long_names,
    "many": many,
    "one": lambda: SweepResult(rows=(row(),)),
    "none": lambda: SweepResult(rows=(unfit(),)),
    "free": lambda: SweepResult(rows=(row(rating=0.0),)),
    "empty": lambda: SweepResult(rows=()),
    "steps": lambda: SweepResult(rows=(row(step=2.0), row(id="2" * 20, world_size=16, step=1.0))),
}
Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    pages = []

    def open_page(result: SweepResult, width: int = 1400) -> Page:
        path = tmp_path / f"{len(pages)}.html"
        write_page(result, str(path))
        pages.append(browser.open(path, width=width))
        return pages[-1]

    yield open_page
    complaints = [complaint for page in pages[-1:] for complaint in page.complaints()]
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.parametrize("case", CASES)
def test_it_renders_on_a_phone_and_on_a_desk_without_scrolling_sideways(
    opened: Open, case: str
) -> None:
    page = opened(CASES[case](), 400)
    for width in (400, 1400):
        page.resize(width)
        page.media(dark=width == 1400)
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.querySelector('main').innerHTML.includes('NaN')") is False
        assert page.run("document.querySelector('main').innerHTML.includes('Infinity')") is False
        smallest = (
            "Math.min(99, ...[...document.querySelectorAll('.charts text')].map((t) => "
            "t.getBoundingClientRect().height))"
        )
        assert page.run(smallest) >= 10
    assert page.run("document.querySelectorAll('*').length") < 20_000


def test_every_control_has_a_name(opened: Open) -> None:
    page = opened(mixed())
    nameless = page.run(
        "[...document.querySelectorAll('input, select, button, [tabindex=\"0\"]')].filter((e) =>"
        " !e.getAttribute('aria-label') && !e.textContent.trim() && !e.closest('label'))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []
    assert page.texts("h1") == ["m"]
    unnamed = "[...document.querySelectorAll('section')].filter((s) => !s.getAttribute('aria-label"
    assert page.run(f"{unnamed}ledby')).length") == 0


def test_the_grid_shows_times_and_what_is_lacking(opened: Open) -> None:
    page = opened(mixed())
    assert page.texts("#fit thead th") == ["Ranks", "8", "16", "32", "64"]
    assert page.texts("#fit tbody th") == ["a100, fp32", "a100, fp16", "h100, fp32", "h100, fp16"]
    assert page.texts("#fit tbody tr:first-child button") == [
        "−1.0 GiB", "20.00 ms", "10.00 ms", "5.000 ms",
    ]  # fmt: skip
    assert page.texts("#fit tbody tr:last-child button")[-1] == "failed"
    assert page.texts("#cell-count") == ["16 of 16, 13 fit"]


def test_the_fastest_cell_is_chosen_first_and_a_click_chooses_another(opened: Open) -> None:
    page = opened(mixed())
    assert page.texts("#chosen-title") == ["64 x h100, fp32"]
    page.run("document.querySelectorAll('#fit tbody tr')[1].querySelectorAll('button')[1].click()")
    assert page.texts("#chosen-title") == ["16 x a100, fp16"]
    assert page.texts("#chosen-plan .value")[0] == "10.00 ms"
    page.run("document.querySelectorAll('#fit tbody button')[0].click()")
    assert "Does not fit: about 1 GiB more HBM" in page.texts("#chosen-plan")[0]
    page.run("document.querySelector('#by-ranks .point').dispatchEvent(new Event('click'))")
    assert page.texts("#chosen-title") == ["16 x a100, fp32"]


def test_the_grid_is_one_tab_stop_and_the_arrows_move_in_it(opened: Open) -> None:
    page = opened(mixed())
    assert page.run("document.querySelectorAll('#fit [tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('#fit [tabindex=\"0\"]').focus()")
    page.press("ArrowLeft")
    page.press("Enter")
    assert page.texts("#chosen-title") == ["32 x h100, fp32"]
    active = "document.activeElement.getAttribute('aria-label')"
    assert page.run(active) == "32 x h100, fp32: 2.500 ms"
    for _ in range(9):
        page.press("ArrowRight")
    assert page.run(active) == "64 x h100, fp32: 1.250 ms"


def test_a_chart_is_one_tab_stop_and_the_arrows_go_through_its_cells(opened: Open) -> None:
    page = opened(mixed())
    page.run("document.querySelector('#by-price').focus()")
    page.press("End")
    said = "document.querySelector('#by-price').getAttribute('aria-valuetext')"
    assert page.run(said) == page.texts("#chosen-title")[0] + ": 1.250 ms"
    page.press("ArrowLeft")
    assert page.texts("#chosen-title") != ["64 x h100, fp32"]
    assert page.run("document.activeElement.id") == "by-price"


def test_charts_have_a_point_for_each_cell_and_the_best_for_their_price(opened: Open) -> None:
    page = opened(mixed())
    for chart in ("ranks", "price", "memory"):
        assert len(page.texts(f"#by-{chart} .point")) == 13
    assert len(page.texts("#by-ranks .misfit")) == 2
    assert page.run("document.querySelectorAll('#by-price .frontier').length") == 1
    assert page.texts("#legend li") == ["a100", "h100", "fp32", "fp16"]


def test_without_prices_the_page_says_how_to_give_them(opened: Open) -> None:
    page = opened(SweepResult(rows=(row(),)))
    assert "pass --price SKU=2.5" in page.texts("#by-price")[0]


def pick(page: Page, axis: str, value: str) -> None:
    box = f"document.querySelector('select[data-name={axis}]')"
    page.run(f"{box}.value = '{value}'; {box}.dispatchEvent(new Event('change'))")


def test_cells_are_filtered_by_expression_axis_ranks_and_memory(opened: Open) -> None:
    page = opened(mixed())
    page.type_into("#filter-text", "^m (a|b)100 .*16$")
    assert page.texts("#fit tbody th") == ["a100"]
    page.run("document.querySelector('#filter-text').value = ''")
    page.type_into("#ranks-least", "32")
    assert page.texts("#fit thead th") == ["Ranks", "32", "64"]
    page.type_into("#filter-size", "<70GiB")
    assert page.texts("#cell-count") == ["2 of 16, 2 fit"]
    pick(page, "sku", "1")
    assert page.texts("#cell-list tbody td:first-child") == ["32 x h100"]
    page.type_into("#filter-text", "nothing has this")
    assert page.texts("#fit") == ["None matches."]
    assert page.texts("#chosen-plan") == ["Choose a cell above."]


def test_a_text_that_is_no_expression_is_taken_literally(opened: Open) -> None:
    page = opened(mixed())
    page.type_into("#filter-text", "h100 (")
    assert page.run("document.querySelector('#filter-text').getAttribute('aria-invalid')") == "true"
    assert page.texts("#cell-count") == ["0 of 16, 0 fit"]


def test_times_of_one_model_and_batch_are_shown_at_first(opened: Open) -> None:
    page = opened(many())
    assert page.texts("#cell-count") == ["700 of 2,100, 700 fit"]
    pick(page, "model", "")
    assert page.texts("#cell-count") == ["2,100 of 2,100, 2,100 fit"]
    assert page.run("document.querySelectorAll('#fit tbody tr').length") == 60
    assert "240 more rows" in page.texts("#fit-note")[0]


def saved(page: Page, selector: str) -> list[list[str]]:
    page.run(SAVED)
    page.run(f"document.querySelector('{selector}').click()")
    text = page.call("Runtime.evaluate", expression="window.saved.text()", awaitPromise=True)
    return list(csv.reader(io.StringIO(text["result"]["value"])))


def test_csv_has_the_cells_shown_with_all_fields(opened: Open) -> None:
    page = opened(mixed())
    page.type_into("#filter-text", "h100 fp32")
    titles, *rows = saved(page, "#list-actions button")
    assert titles == [*(field.name for field in fields(Row)), "per_hour"]
    found = [dict(zip(titles, values, strict=True)) for values in rows]
    assert [cell["world_size"] for cell in found] == ["64", "32", "16", "8"]
    assert [cell["rating"] for cell in found] == ["1.25", "2.5", "5", ""]
    assert found[0]["per_hour"] == "192"
    assert page.run("window.file") == "sweep.csv"


def test_names_with_commas_and_quotes_survive_csv(opened: Open) -> None:
    page = opened(SweepResult(rows=(row(model='a "b", c', sku="x,y"),)))
    titles, values = saved(page, "#list-actions button")
    cell = dict(zip(titles, values, strict=True))
    assert (cell["model"], cell["sku"]) == ('a "b", c', "x,y")


def test_a_cell_shows_its_plan_and_its_links_work(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "a page.html"
    plans = folder_beside(str(path))
    asked = sweep(models=(model(),), skus=(hardware(), tight()), precisions=("fp32", "fp16"))
    result = run_sweep(asked, executor=Inline(), plans=plans)
    write_page(result, str(path), plans=plans)
    page = browser.open(path, width=400)
    assert page.run("document.documentElement.scrollWidth") <= 400
    assert set(page.texts("#chosen-plan td.name")) == {"ebc.users", "ebc.items"}
    assert page.texts("#chosen-links a") == ["Page of this plan", "Plan file"]
    links = page.run("[...document.querySelectorAll('#chosen-links a')].map((a) => a.href)")
    for link in links:
        assert Path(link.removeprefix("file://").replace("%20", " ")).is_file()
    assert page.complaints() == []
    page.close()
