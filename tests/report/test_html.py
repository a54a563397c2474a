"""The HTML report, checked without a browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from fastplan.report.html import html_report
from fastplan.report.html_data import embedded
from tests.report.pages import Page, asset, contrast, palettes
from tests.report.samples import bare, criteo, large, rated, small, with_names

SCRIPTS = ("base.js", "chart.js", "ranks.js", "lists.js", "page.js")
STYLES = ("base.css", "ranks.css", "lists.css", "sizes.css")
NASTY = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "'\"&amp;",
    "a\u2028b\u2029c",
    "\x00\x1b[2J\u202e",
    "]]>--><!--",
]


@pytest.mark.parametrize("make", [small, criteo, large, lambda: bare(criteo())])
def test_the_page_is_well_formed_and_names_the_model(make):
    plan = make()
    page = Page(html_report([plan]))
    assert page.broken == []
    assert page.text_of("h1") == plan.name
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_page_needs_nothing_else():
    text = html_report([criteo()])
    page = Page(text)
    for tag, attrs in page.elements:
        assert tag not in ("img", "iframe", "object", "embed", "video", "audio", "base")
        assert attrs.get("src") is None
        assert attrs.get("href") in (None, "data:,")
        assert not [name for name in attrs if name.startswith("on") or name == "style"]
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    links = set(re.findall(r"https?://[^\"'\s<)]+", text))
    assert links == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_only_the_pages_own_style_and_script_may_run():
    text = html_report([small()])
    page = Page(text)
    policy = next(
        attrs["content"]
        for _, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script, style = page.scripts[1], page.text_of("style")
    for kind, content in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_script_builds_from_text_only():
    script = "".join(asset(name) for name in SCRIPTS)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script
    )
    assert not re.search(r"console\.|debugger|setAttribute\(\"style\"", script)


@pytest.mark.parametrize("name", [*SCRIPTS, *STYLES])
def test_assets_keep_to_the_house_style(name):
    lines = asset(name).splitlines()
    assert len(lines) < 400
    assert max(map(len, lines)) <= 100


def test_names_stay_text():
    text = html_report([with_names(NASTY)])
    page = Page(text)
    assert page.broken == []
    assert [tag for tag, _ in page.elements if tag in ("img", "b")] == []
    assert len(page.scripts) == 2
    assert page.text_of("h1") == NASTY[0]
    names = [table["name"] for table in page.data["plans"][0]["tables"]]
    assert names[:3] == NASTY[:3]
    assert names[3] == r"a\u2028b\u2029c"
    assert names[4] == r"\x00\x1b[2J\u202e"


@pytest.mark.parametrize("character", ["<", ">", "&", "\u2028", "\u2029"])
def test_embedded_data_has_no_character_that_could_end_it(character):
    text = embedded({"name": f"a{character}b"})
    assert character not in text
    assert json.loads(text) == {"name": f"a{character}b"}


def test_lone_surrogates_and_notes_can_be_written():
    plan = replace(with_names(["\ud800", *"abcde"]), notes={"model\n": "<x>\udfff"})
    text = html_report([plan])
    text.encode("utf-8")
    assert r"\udfff" in Page(text).text_of("dd")


def test_the_data_has_every_rank_and_table():
    data = Page(html_report([large()])).data["plans"][0]
    assert data["ranks"] == 1024
    assert [len(values) for values in data["parts"].values()] == [1024] * 6
    assert len(data["total"]) == 1024
    assert len(data["tables"]) == 1000
    assert [lane["name"] for lane in data["lanes"]] == ["HBM"]
    assert len(data["lanes"][0]["used"]) == len(data["lanes"][0]["capacity"]) == 1024


def test_the_headline_says_whether_it_is_balanced_what_limits_it_and_whether_it_fits():
    data = Page(html_report([criteo()])).data["plans"][0]
    assert data["sentence"] == (
        "4 ranks (r0,3,5,6) tie as the slowest, 7.3 % above the mean; 55.9 % of their time is "
        "communication. "
        "Memory fits, with 25.4 % of HBM free on the fullest rank."
    )
    assert [tile["title"] for tile in data["tiles"]] == [
        *("Rating", "Imbalance", "Limited by", "HBM headroom")
    ]
    assert sum(share for _, share in data["tiles"][2]["split"]) == pytest.approx(1)


def test_a_plan_that_does_not_fit_is_not_called_fine():
    plan = small()
    tiny = replace(plan.basis.cluster, rank_hbm=(1 << 20,) * 8)
    data = Page(html_report([replace(plan, basis=replace(plan.basis, cluster=tiny))])).data
    tile = data["plans"][0]["tiles"][-1]
    assert (tile["verdict"], tile["tone"]) == ("Does not fit:", "bad")
    assert "It does not fit" in data["plans"][0]["sentence"]


def test_a_bare_layout_and_a_plan_without_costs_are_shown_as_far_as_they_are_known():
    for plan in (bare(criteo()), rated(small(), 123.0)):
        data = Page(html_report([plan])).data["plans"][0]
        assert data["parts"] is None
        assert data["tiles"]


def test_the_origin_of_the_plan_is_there():
    plan = criteo(notes={"model": "dlrm", "sku": "a100"})
    page = Page(html_report([plan]))
    assert "2026-03-01T12:00:00Z" in page.text_of("dd")
    assert plan.fingerprint in page.text_of("code")
    assert "not measurements" in page.text_of("dd")
    assert {"Model", "Sku", "Engine", "Created"} <= set(
        re.findall("<dt>(.*?)</dt>", html_report([plan]))
    )


def test_without_script_there_is_the_text():
    page = Page(html_report([criteo()]))
    assert "rating   0.651 ms est." in page.text_of("pre")
    assert all(f"t_cat_{i} " in page.text_of("pre") for i in range(26))


def test_several_plans_can_be_chosen_between():
    page = Page(html_report([criteo(), bare(criteo())]))
    choices = [attrs for _, attrs in page.elements if attrs.get("name") == "plan"]
    assert [choice["value"] for choice in choices] == ["0", "1"]
    assert len(page.data["plans"]) == 2


def test_no_plan_is_no_page():
    with pytest.raises(ValueError, match="`plans` must have at least one"):
        html_report([])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "surface", "faint"])
@pytest.mark.parametrize("text", ["ink", "muted", "good", "warn", "bad", "accent"])
def test_text_has_enough_contrast(scheme, ground, text):
    colours = palettes()[scheme]
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_heat_scale_differs_in_lightness(scheme):
    colours = palettes()[scheme]
    steps = [
        contrast(colours[f"heat-{name}"], colours["surface"]) for name in ("low", "mid", "high")
    ]
    assert steps == sorted(steps)
    assert steps[2] / steps[1] > 1.8
    assert steps[1] / steps[0] > 1.8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_neighbouring_parts_differ_in_lightness(scheme):
    colours = palettes()[scheme]
    stack = ["fwd-compute", "bwd-compute", "fwd-comms", "bwd-comms"]
    for below, above in pairwise(stack):
        assert contrast(colours[below], colours[above]) > 1.5
