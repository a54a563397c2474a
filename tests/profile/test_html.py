"""The page about ids: self-contained, sortable, and safe with any name."""

import pytest

from fastplan.model.ids import Curve, IdStatistics
from fastplan.profile.html import html_page
from fastplan.spec.model import ModelSpec, TableSpec
from tests.report.test_html import NASTY


def ids(count, **changes):
    fields = {
        "ids": count,
        "samples": count // 2,
        "unique": Curve.of([(1, 1), (count, 0.1)]),
        "misses": Curve.of([(1, 0.9), (count // 10, 0.1)]),
        "hottest": Curve.of([(1, 0.1), (count // 10, 1)]),
        "pooling_quantiles": Curve.of([(0.5, 2), (1, 9)]),
        "zipf": 1.1,
        "zipf_error": 0.02,
        "followed": 0.25,
    }
    return IdStatistics(**{**fields, **changes})


BARE = {"hottest": None, "pooling_quantiles": None, "zipf": None, "zipf_error": None}


def page_of(statistics):
    tables = tuple(TableSpec(name=name, rows=1000, dim=64) for name in statistics)
    return html_page(ModelSpec(name="model", tables=tables, batch_size=64), statistics)


def test_it_fetches_nothing_and_holds_no_markup_of_names():
    text = page_of({name: ids(1000) for name in NASTY})
    for each in ("http://", "https://", "<img", "alert(1)</script>"):
        assert each not in text.replace("http://www.w3.org/2000/svg", "")
    assert "default-src &#39;none&#39;" in text


@pytest.mark.parametrize("width", [400, 1400])
def test_it_is_sorted_and_drawn(browser, tmp_path, width):
    file = tmp_path / "ids.html"
    file.write_text(page_of({"a": ids(1000), "b": ids(3000), "c": ids(2000, **BARE)}))
    page = browser.open(file, width=width)
    assert page.texts("tbody td.name") == ["b", "c", "a"]
    page.run("document.querySelector('th button').click()")
    assert page.texts("tbody td.name") == ["a", "b", "c"]
    assert page.texts("#chosen") == ["b"]
    assert page.run("document.querySelectorAll('.curves path.curve').length") == 4
    page.run("document.querySelectorAll('td.name button')[2].click()")
    assert page.texts("#chosen") == ["c"]
    assert page.texts("#hottest") == ["not known"]
    page.type_into("#filter-text", "b")
    assert page.texts("#table-count") == ["1 of 3"]
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.complaints() == []
    page.close()


def test_nasty_names_are_text(browser, tmp_path):
    file = tmp_path / "ids.html"
    file.write_text(page_of({name: ids(1000) for name in NASTY}))
    page = browser.open(file)
    assert len(page.texts("tbody td.name")) == len(NASTY)
    assert page.run("document.querySelectorAll('img, td b').length") == 0
    assert page.complaints() == []
    page.close()
