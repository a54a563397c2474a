"""The HTML report in a real browser."""

import csv
import io
from dataclasses import replace

import pytest

from fastplan.report.comparison import Measured, compare
from fastplan.report.html import html_report
from tests.report.samples import (
    bare,
    cluster_of,
    criteo,
    criteo_row_wise,
    criteo_table_wise,
    criteo_tables,
    large,
    mixed_request,
    plan_of,
    rated,
    small,
    with_names,
)
from tests.report.test_html import NASTY


def compared(*plans):
    comparison = compare(plans, labels=[f"{'abc'[i]}.json" for i in range(len(plans))])
    return html_report(plans, comparison)


def measured():
    plans = [criteo(), criteo_table_wise(), criteo_row_wise()]
    labels = ["a.json", "b.json", "c" * 60]
    seconds = {label: Measured({}, 0.01 * (i + 1), 0.003) for i, label in enumerate(labels)}
    comparison = compare(plans, labels=labels, measured=seconds)
    return html_report(plans, comparison, ["a finding"])


def free():
    """A plan whose tables are never looked up."""
    tables = [made._replace(perf_inputs=0.0, perf_outputs=0.0) for made in criteo_tables()]
    return plan_of(mixed_request(tables, 8, 8), cluster_of(8, 8))


def empty():
    plan = bare(small())
    return replace(plan, layout=replace(plan.layout, tables=()))


CASES = {
    "criteo": lambda: html_report([criteo(notes={"lower_bound": "0.62"})]),
    "alike": lambda: html_report([criteo_row_wise()]),
    "large": lambda: html_report([large()]),
    "huge": lambda: html_report([large(40, 4096)]),
    "few": lambda: html_report([large(3, 8)]),
    "bare": lambda: html_report([bare(criteo())]),
    "unrated": lambda: html_report([rated(small(), 123.0)]),
    "nasty": lambda: html_report([with_names(NASTY)]),
    "long": lambda: html_report([with_names(["x" * 500, "y " * 300, "表" * 200, *"abc"])]),
    "two": lambda: compared(criteo(), criteo_table_wise()),
    "three": lambda: compared(criteo(), criteo_table_wise(), criteo_row_wise()),
    "measured": measured,
    "free": lambda: html_report([free()]),
    "empty": lambda: html_report([empty()]),
    "same": lambda: compared(criteo(), criteo()),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pages are written when first asked for."""
    folder = tmp_path_factory.mktemp("pages")

    def write(case):
        path = folder / f"{case}.html"
        if not path.exists():
            path.write_text(CASES[case](), encoding="utf-8")
        return path

    return write


@pytest.fixture
def show(browser, files):
    pages = []

    def show(case, **options):
        pages.append(browser.open(files(case), **options))
        return pages[-1]

    yield show
    complaints = [complaint for page in pages[-1:] for complaint in page.complaints()]
    for page in pages:
        page.close()
    assert complaints == []


def test_complaints_are_heard(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('one'); throw new Error('two')</script>")
    page = browser.open(bad)
    found = "".join(page.complaints())
    page.close()
    assert "one" in found
    assert "two" in found


@pytest.mark.parametrize("case", CASES)
def test_it_renders_at_800_pixels_without_scrolling_sideways_or_complaining(show, case):
    page = show(case, width=800)
    for dark in (False, True):
        page.media(dark=dark)
        assert page.run("document.documentElement.scrollWidth") <= 800
        inner = page.run("[...document.querySelectorAll('.list')].map((e) => e.scrollWidth)")
        assert max(inner) <= 800
    filled = case != "empty"
    assert page.run("document.querySelectorAll('#chart svg').length") == filled
    assert bool(page.texts("#table-list tbody tr")) == filled
    assert page.run("document.querySelectorAll('#chart rect').length") < 2000
    assert page.run("document.querySelectorAll('#table-list tbody tr').length") <= 200
    assert page.texts("#sentence")[0]
    assert page.run("document.querySelector('svg')?.innerHTML.includes('NaN')") in (False, None)


def test_other_widths_do_not_scroll_sideways_either(show):
    page = show("two")
    for width in (360, 1280, 1920):
        page.resize(width)
        assert page.run("document.documentElement.scrollWidth") <= width


def headers(page):
    found = page.run("[...document.querySelectorAll('#table-list th')].map((th) => [th.textContent,"
                     " th.getAttribute('aria-sort')])")  # fmt: skip
    return dict(found)


def column(page, number):
    return page.texts(f"#table-list tbody td:nth-child({number})")


def test_headers_sort_with_the_mouse(show):
    page = show("criteo")
    assert headers(page)["Cost share"] == "descending"
    page.run("document.querySelector('#table-list th button').click()")
    assert headers(page)["Table"] == "ascending"
    assert headers(page)["Cost share"] is None
    assert column(page, 1) == [f"t_cat_{i}" for i in range(26)]  # numbers count as numbers
    page.run("document.querySelector('#table-list th button').click()")
    assert headers(page)["Table"] == "descending"
    assert column(page, 1)[0] == "t_cat_25"


def test_headers_sort_with_the_keyboard(show):
    page = show("criteo")
    page.run("document.querySelectorAll('#table-list th button')[2].focus()")
    page.press("Enter")
    assert headers(page)["Size"] == "descending"
    assert column(page, 3)[:2] == ["19.1 GiB", "19.1 GiB"]
    page.press(" ")
    assert headers(page)["Size"] == "ascending"
    assert column(page, 3)[0] == "50.0 KiB"


def test_filters_by_name_type_and_rank(show):
    page = show("criteo")
    page.type_into("#filter-text", "CAT_2")
    assert len(column(page, 1)) == 7
    assert page.texts("#table-count")[0].startswith("7 of 26, ")
    choose = "document.querySelector('#filter-type')"
    page.run(f"{choose}.value = 'row_wise'; {choose}.dispatchEvent(new Event('change'))")
    assert column(page, 1) == ["t_cat_20"]
    page.run(f"{choose}.value = ''; {choose}.dispatchEvent(new Event('change'))")
    page.type_into("#filter-rank", "5")
    ranks = column(page, 7)
    assert set(ranks) == {"r5", "all ranks"}
    page.type_into("#filter-text", " and nothing")
    assert column(page, 1) == []
    assert page.texts("#table-list .more") == ["None matches."]


def test_tables_are_filtered_by_expression_and_size(show):
    page = show("criteo")
    page.type_into("#filter-text", "^t_cat_(1|2)$")
    assert sorted(column(page, 1)) == ["t_cat_1", "t_cat_2"]
    page.run("document.querySelector('#filter-text').value = ''")
    page.type_into("#filter-size", ">1GiB")
    assert column(page, 1)
    assert all(size.endswith("GiB") for size in column(page, 3))
    fields = "document.querySelector('#filter-size')"
    for text, expected in (("19GiB-20GiB", {"19.1 GiB"}), ("<60KiB", {"50.0 KiB"})):
        page.run(f"{fields}.value = ''")
        page.type_into("#filter-size", text)
        assert set(column(page, 3)) == expected
        assert page.run(f"{fields}.getAttribute('aria-invalid')") is None


def test_a_filter_that_cannot_be_read_says_so_and_hides_little(show):
    page = show("criteo")
    page.type_into("#filter-size", "large")
    assert len(column(page, 1)) == 26
    assert page.run("document.querySelector('#filter-size').getAttribute('aria-invalid')") == "true"
    page.run("document.querySelector('#filter-size').value = ''")
    page.type_into("#filter-text", "cat_2[")
    assert column(page, 1) == []
    assert page.run("document.querySelector('#filter-text').title").startswith("This is not a")


def saved_csv(page, button):
    """The CSV file that a button saves, as rows."""
    page.run(
        "URL.createObjectURL = (blob) => { window.saved = blob; return 'about:blank'; };"
        "HTMLAnchorElement.prototype.click = function () {};"
    )
    page.run(f"document.querySelector('{button}').click()")
    found = page.call("Runtime.evaluate", expression="window.saved.text()", awaitPromise=True)
    return list(csv.reader(io.StringIO(found["result"]["value"])))


def test_the_tables_shown_are_saved_as_csv(show):
    page = show("two")
    page.type_into("#filter-text", "cat_2$|cat_20")
    titles, *rows = saved_csv(page, "#tables .csv")
    assert titles[:4] == ["table", "rows", "dim", "bytes"]
    assert {row[0].rpartition(".")[2] for row in rows} == {"t_cat_2", "t_cat_20"}
    assert all(row[3].isdigit() for row in rows)


def test_changes_are_filtered_by_size_and_saved_as_csv(show):
    page = show("two")
    every = len(saved_csv(page, ".gap .csv")) - 1
    page.type_into("#filter-change", "cat_1")
    page.type_into(".gap .size", ">1MiB")
    titles, *rows = saved_csv(page, ".gap .csv")
    assert titles == ["plan", "table", "before", "after", "bytes"]
    assert 0 < len(rows) < every
    assert all("cat_1" in row[1] and int(row[4]) > 2**20 for row in rows)


def test_another_plan_keeps_one_field_for_sizes_and_its_filter(show):
    page = show("two")
    page.type_into("#filter-size", ">1GiB")
    before = page.texts("#table-count")
    page.run("document.querySelector('[name=plan]').click()")
    assert page.run("document.querySelectorAll('#tables .size, #tables .csv').length") == 2
    assert page.texts("#table-count") == before


def test_only_the_first_of_many_tables_are_shown_at_first(show):
    page = show("large")
    assert len(column(page, 1)) == 200
    page.run("document.querySelector('#table-list .more button').click()")
    assert len(column(page, 1)) == 1000


def test_the_cursor_starts_at_the_worst_rank_and_follows_the_keys(show):
    page = show("criteo")
    title = "#details h3"
    assert page.texts(title)[0] == "Rank 0, host 0"
    page.run("document.querySelector('#chart').focus()")
    page.press("ArrowRight")
    assert page.texts(title)[0] == "Rank 1, host 0"
    page.press("End")
    assert page.texts(title)[0] == "Rank 7, host 0"
    page.press("ArrowRight")
    assert page.texts(title)[0] == "Rank 7, host 0"
    slider = page.run("document.querySelector('#chart').getAttribute('aria-valuetext')")
    assert slider == "Rank 7, host 0: 0.525 ms"
    page.press("Enter")
    assert page.run("document.querySelector('#filter-rank').value") == "7"
    assert set(column(page, 7)) == {"r7", "all ranks"}


def test_the_cursor_follows_the_mouse(show):
    page = show("criteo")
    x = page.run("document.querySelector('#chart').getBoundingClientRect().right - 20")
    y = page.run("document.querySelector('#chart').getBoundingClientRect().top + 30")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert page.texts("#details h3")[0] == "Rank 7, host 0"


def test_many_ranks_are_shown_by_hosts_and_one_by_one_on_demand(show):
    page = show("large")
    assert page.texts("#details h3")[0] == "Ranks 504–511, the worst is 504"
    assert page.run("document.querySelector('#zoom-out').hidden")
    page.run("document.querySelector('#chart').focus()")
    page.press("Enter")
    assert page.texts("#details h3")[0] == "Rank 504, host 63"
    assert page.run("document.querySelector('#chart').getAttribute('aria-valuemax')") == "7"
    page.press("Escape")
    assert page.run("document.querySelector('#chart').getAttribute('aria-valuemax')") == "127"
    assert page.run("document.activeElement.id") == "chart"


def test_ranks_can_be_ordered_by_load(show):
    page = show("large")
    page.run("document.querySelector('[name=order][value=load]').click()")
    page.run("document.querySelector('#chart').focus()")
    page.press("Enter")
    assert page.texts("#details h3")[0] == "Rank 504, host 63"


def test_light_and_dark_follow_the_system(show):
    page = show("criteo")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.run(ground) == "rgb(250, 250, 248)"
    page.media(dark=True)
    assert page.run(ground) == "rgb(20, 23, 27)"
    cells = page.run("[...new Set([...document.querySelectorAll('.cell')].map("
                     "(cell) => getComputedStyle(cell).fill))].length")  # fmt: skip
    assert cells > 5


def test_paper_is_light_and_has_no_controls(show):
    page = show("two", dark=True)
    page.media(dark=True, kind="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for control in ("#filter-text", "#filter-type", "#zoom-out", ".choice:has([name=order])"):
        shown = f"getComputedStyle(document.querySelector('{control}')).display"
        assert page.run(shown) == "none"
    assert len(page.call("Page.printToPDF")["data"]) > 10_000


def test_names_are_text_and_nothing_else(show):
    page = show("nasty")
    assert sorted(column(page, 1)) == sorted(
        [*NASTY[:3], r"a\u2028b\u2029c", r"\x00\x1b[2J\u202e", NASTY[5]]
    )
    assert page.run("document.images.length") == 0
    assert page.run("document.scripts.length") == 2
    assert page.texts("h1") == [NASTY[0]]


def test_a_comparison_lists_changes_and_switches_between_plans(show):
    page = show("two")
    marks = page.texts("#change-list tbody td:first-child")
    assert len(marks) == 12
    assert set(marks) <= {"~", ">"}
    page.type_into("#filter-change", "cat_22")
    assert len(page.texts("#change-list tbody tr")) == 1
    assert page.run("document.querySelectorAll('.strip')[1].childElementCount") == 8
    before = page.texts("#sentence")
    page.run("document.querySelectorAll('[name=plan]')[0].click()")
    after = page.texts("#sentence")
    assert before != after
    assert after[0].startswith("4 ranks (r0,3,5,6) tie as the slowest")


def test_plans_are_drawn_on_one_scale(show):
    page = show("two")
    height = "Math.max(...[...document.querySelectorAll('#chart .bwd_comms')].map("
    height += "(bar) => bar.height.baseVal.value))"
    low = page.run(height)
    page.run("document.querySelectorAll('[name=plan]')[0].click()")
    assert page.run(height) > 3 * low


def test_ranks_that_tie_are_said_to_tie(show):
    page = show("criteo")
    assert "rank 0 and 3 others tie for the worst" in " ".join(page.texts("#chart text"))


def test_equal_plans_have_no_list_of_changes(show):
    page = show("same")
    assert page.texts(".sentence")[0] == "All plans place every table the same way."
    assert page.run("document.querySelector('#change-list')") is None


def test_a_narrower_window_is_drawn_again(show):
    page = show("criteo", width=1280)
    page.resize(800)
    width = "document.querySelector('#chart svg').viewBox.baseVal.width"
    drawn = "document.querySelector('#chart').clientWidth"
    assert page.run(width) == page.run(drawn)
