"""The scatter plot of estimated and measured times."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from fastplan.report.comparison import Measured, compare
from fastplan.report.html import ScatterPoint, html_report, scatter
from tests.report.samples import bare, criteo, criteo_row_wise, criteo_table_wise
from tests.report.test_html import NASTY


def drawn(points):
    return ElementTree.fromstring(scatter(points))


def dots(root):
    found = root.findall("circle")
    return {
        dot.findtext("title").split(":")[0]: (float(dot.get("cx")), float(dot.get("cy")))
        for dot in found
    }


def test_longer_times_are_further_right_and_up():
    found = dots(drawn([ScatterPoint("a", 1.0, 5.0, 0.1), ScatterPoint("b", 2.0, 9.0, 0.1)]))
    assert found["a"][0] < found["b"][0]
    assert found["a"][1] > found["b"][1]


def test_plans_with_one_factor_are_on_its_line():
    points = [
        ScatterPoint(name, ms, 7 * ms, 0.0) for name, ms in (("a", 1.0), ("b", 3.0), ("c", 50.0))
    ]
    root = drawn(points)
    (line,) = (made for made in root.findall("line") if made.get("class") == "mean")
    x1, y1, x2, y2 = (float(line.get(name)) for name in ("x1", "y1", "x2", "y2"))
    assert line.findtext("title").startswith("measured = 7 x estimated")
    for x, y in dots(root).values():
        assert y == pytest.approx(y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs=0.3)


def test_everything_is_inside_the_picture_and_no_label_covers_another():
    points = [ScatterPoint(f"plan {i}", 10.0 + i % 3, 20.0 + i / 100, 30.0) for i in range(12)]
    root = drawn([*points, ScatterPoint("far", 1e4, 1e6, 0.0)])
    width, height = (float(size) for size in root.get("viewBox").split()[2:])
    for made in root.iter():
        for name, most in (
            ("x", width),
            ("x1", width),
            ("cx", width),
            ("y", height),
            ("y2", height),
        ):
            if made.get(name) is not None:
                assert 0 <= float(made.get(name)) <= most
    labels = [made for made in root.findall("text") if made.text.startswith("plan")]
    heights = sorted(float(made.get("y")) for made in labels)
    assert all(b - a >= 12 for a, b in pairwise(heights))


@pytest.mark.parametrize("measured", [1e-9, 1.0, 1.0000001, 1e9])
def test_times_of_any_size_have_a_scale(measured):
    text = scatter([ScatterPoint("a", 1.0, 1.0, 0.0), ScatterPoint("b", 1.0, measured, 0.0)])
    assert len(re.findall('class="grid"', text)) >= 4
    assert not re.search(r"nan|inf", text)


def test_less_than_two_plans_are_no_picture():
    assert (
        scatter([])
        == scatter([ScatterPoint("a", 1.0, 1.0, 0.0), ScatterPoint("b", 0.0, 1.0, 0.0)])
        == ""
    )


def test_names_are_text_and_not_markup():
    root = drawn([ScatterPoint(name, 1.0 + i, 2.0, 0.1) for i, name in enumerate(NASTY)])
    assert len(root.findall("circle")) == len(NASTY)


def page(measured, findings=()):
    plans = [criteo(), criteo_table_wise(), criteo_row_wise()]
    comparison = compare(plans, labels=["a", "b", "c"], measured=measured)
    return html_report(plans, comparison, findings)


def test_the_report_has_the_picture_where_two_plans_were_measured():
    text = page({"a": Measured({}, 0.01, 0.001), "c": Measured({}, 0.02, 0.001)}, ["all <agree>"])
    assert len(re.findall("<circle", text)) == 2
    assert "all &lt;agree&gt;" in text
    assert "scatter" not in page({"a": Measured({}, 0.01, 0.001)}).split("</style>")[1]
    assert "<circle" not in page(None)


def test_plans_without_an_estimate_are_not_in_it():
    plans = [bare(criteo()), bare(criteo_table_wise())]
    found = {name: Measured({}, 0.01, 0.001) for name in "ab"}
    comparison = compare(plans, labels=["a", "b"], measured=found)
    assert "<circle" not in html_report(plans, comparison)
