"""What `fastplan compare` prints."""

import json
import re

import pytest

from fastplan.report.compare_text import compare_json, compare_text
from fastplan.report.comparison import Measured, compare
from fastplan.report.terminal import Style, display_width
from tests.problems import ALL_TYPES, request
from tests.report.samples import (
    bare,
    cluster_of,
    criteo,
    criteo_row_wise,
    criteo_table_wise,
    large,
    plan_of,
    rated,
    small,
    with_names,
)

LABELS = ("greedy.json", "best.json", "rows.json")


def two(**options):
    return compare([criteo(), criteo_table_wise()], labels=LABELS[:2], **options)


def three(**options):
    return compare([criteo(), criteo_table_wise(), criteo_row_wise()], labels=LABELS, **options)


def test_counts_come_first():
    lines = compare_text(two()).splitlines()
    assert lines[0] == "greedy.json -> best.json"
    assert lines[1] == "26 tables, 8 ranks (1 host x 8)"
    assert lines[3] == "planned differently: other options for 26 tables"
    assert lines[5] == "17 re-sharded, 8 moved, 0 added, 0 removed, 1 unchanged"


def test_the_largest_changes_follow_with_marks_and_bytes():
    lines = compare_text(two()).splitlines()
    changes = [line for line in lines if re.match(r"  [~>+-] ", line)]
    assert len(changes) == 10
    assert re.match(r"  > sparse\.t_cat_9 +table_wise fused r1 -> r3 +19\.1 GiB$", changes[0])
    assert "  and 15 more changes, 11.4 MiB" in lines
    every = compare_text(two(), tables=True)
    assert len(re.findall(r"^  [~>] ", every, re.MULTILINE)) == 25


def test_movement_rating_balance_and_memory_follow():
    text = compare_text(two())
    moved = r"98\.1 GiB with states \(weights: 122\.0 GiB\), most to rank \d: "
    assert re.search(rf"^to move +{moved}", text, re.M)
    assert re.search(r"^rating +est\.  0\.651 ms -> 0\.252 ms  -61\.3 %$", text, re.M)
    assert re.search(r"^imbalance +7\.3 % -> 35\.8 % above the mean$", text, re.M)
    assert re.search(r"^HBM +fullest 23\.9 GiB \(r1, 74\.6 %\) -> 19\.1 GiB \(r\d, ", text, re.M)
    assert re.search(r"^  r5 +0\.651 ms +0\.166 ms +-74\.5 %$", text, re.M)


def test_equal_plans_are_reported_as_equal():
    text = compare_text(compare([small(), small()]))
    assert "0 re-sharded, 0 moved, 0 added, 0 removed, 6 unchanged" in text
    assert re.search(r"^to move +nothing$", text, re.M)
    assert "worst ranks" not in text


def test_measured_figures_are_marked_and_noise_is_called_noise():
    assert "meas." not in compare_text(two())
    assert "meas." not in compare_text(two(measured={"best.json": Measured({}, 1.0, 0.1)}))
    slow, fast = Measured({}, 0.0012, 0.0001), Measured({}, 0.0006, 0.00005)
    text = compare_text(two(measured={"greedy.json": slow, "best.json": fast}))
    assert re.search(
        r"^step +meas\. 1\.200 ms \(0\.100 ms spread\) -> 0\.600 ms .* -50\.0 %$", text, re.M
    )
    near = fast._replace(median=0.00118)
    text = compare_text(two(measured={"greedy.json": slow, "best.json": near}))
    assert "-1.7 %, within the spread" in text


def test_measured_ranks_are_shown_with_estimated_ones():
    slow = Measured({"compute": (0.001,) * 8, "comms": (0.002, *[0.0] * 7)}, 0.003, 0.0)
    fast = slow._replace(rank_seconds={"compute": (0.001,) * 8})
    text = compare_text(two(measured={"greedy.json": slow, "best.json": fast}))
    estimated, measured = text.split("worst ranks, ")[1:]
    assert estimated.startswith("est.")
    assert re.search(r"^  r0 +3\.000 ms +1\.000 ms +-66\.7 %$", measured, re.M)


def test_three_plans_are_a_table_against_the_first():
    measured = {"best.json": Measured({}, 0.0012, 0.0001)}
    lines = compare_text(three(measured=measured)).splitlines()
    assert lines[0] == "3 plans, 26 tables, 8 ranks (1 host x 8)"
    assert "best.json: planned differently: other options for 26 tables" in lines
    rows = [
        line.split() for line in lines if line.startswith(tuple(f"  {label}" for label in LABELS))
    ]
    assert [row[0] for row in rows] == list(LABELS)
    assert rows[1][:8] == ["best.json", "0.252", "ms", "-61.3", "%", "1.200", "ms", "35.8"]
    assert "step meas." in compare_text(three(measured=measured))
    assert "step meas." not in compare_text(three())


def test_forced_comparisons_name_the_difference():
    tables = list(small().basis.request.tables)
    other = plan_of(request(tables, 16, 4, ALL_TYPES), cluster_of(16, 4))
    text = compare_text(compare([small(), other], force=True))
    assert re.search(r"^model and cluster: ranks: 8 -> 16; HBM of rank 0", text, re.M)


def test_scripts_get_fields_and_people_get_words():
    other = plan_of(
        small().basis.request, cluster_of(8, 4), context={"reservation": {"percentage": 0.5}}
    )
    comparison = compare([small(), other], labels=["a.json", "b.json"])
    found = compare_json(comparison, labels=["/x/a.json", "/x/b.json"])
    assert [plan["label"] for plan in found["plans"]] == ["/x/a.json", "/x/b.json"]
    (step,) = found["steps"]
    assert step["label"] == "/x/b.json"
    assert "context.reservation.percentage: 0.15 -> 0.5" in step["settings"]
    text = compare_text(comparison)
    assert text.startswith("a.json -> b.json\n")
    assert "planned differently: reserved share of memory: 15.0 % -> 50.0 %; " in text


def test_long_remarks_are_wrapped_and_not_cut():
    other = plan_of(
        small().basis.request,
        cluster_of(8, 4),
        context={"reservation": {"percentage": 0.5}, "replan": {"x": "y" * 300}},
    )
    text = compare_text(compare([small(), other]), style=Style(width=60))
    assert "..." not in text
    assert "…" not in text
    assert all(display_width(line) <= 60 for line in text.splitlines())


def test_bare_layouts_say_what_is_assumed():
    text = compare_text(compare([bare(criteo()), bare(criteo_table_wise())]))
    assert "4-byte elements assumed" in text
    assert "rating" not in text


def test_plans_without_costs_still_have_ratings():
    text = compare_text(compare([small(), rated(small(), 123.0)]))
    assert re.search(r"^rating +est\.  0\.161 ms -> 123\.0 ms", text, re.M)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_figure_is_cut_out_of_a_narrow_page(width):
    slow, fast = Measured({}, 0.004375, 0.001234), Measured({}, 0.004143, 0.003643)
    comparison = two(measured={"greedy.json": slow, "best.json": fast})
    lines = compare_text(comparison, style=Style(width)).splitlines()
    assert max(map(display_width, lines)) <= width
    first = next(i for i, line in enumerate(lines) if line.startswith("step "))
    rest = [line for line in lines[first + 1 : first + 3] if line.startswith(" " * 11)]
    words = " ".join(" ".join(line[11:].split()) for line in [lines[first], *rest])
    sides = "4.375 ms (1.234 ms spread) -> 4.143 ms (3.643 ms spread)"
    assert words == f"meas. {sides} -5.3 %, within the spread"


@pytest.mark.parametrize("style", [Style(), Style(60), Style(80, unicode=False)])
def test_it_fits_a_page(style):
    nasty = with_names(["\x1b[2Jclear", "a\nb", "x" * 500, "\u202eevil", "表" * 80, "<b>"])
    rowwise = plan_of(
        request(list(nasty.basis.request.tables), 8, 4, ("row_wise",)), nasty.basis.cluster
    )
    cases = [two(), compare([nasty, rowwise]), compare([large(), large()])]
    for comparison in cases:
        text = compare_text(comparison, style=style)
        assert len(text.splitlines()) <= 40
        assert max(map(display_width, text.splitlines())) <= style.width
        assert "\x1b" not in text
        assert style.unicode or text.isascii()
    assert max(map(display_width, compare_text(three(), style=Style()).splitlines())) <= 100


def test_colour_is_only_there_when_wanted():
    coloured = compare_text(two(), style=Style(colour=True))
    assert "\x1b[32m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == compare_text(two())


def test_json_has_the_documented_keys_and_is_json():
    found = compare_json(three(measured={"best.json": Measured({}, 1.5, 0.5)}))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == ["same", "yardstick", "plans", "steps"]
    assert found["same"] is False
    for part in (found, found["plans"][0], found["steps"][0], found["steps"][0]["changes"][0]):
        assert all(f"`{key}`" in compare_json.__doc__ for key in part)
    assert [plan["label"] for plan in found["plans"]] == list(LABELS)
    assert found["plans"][1]["measured"] == {"median": 1.5, "spread": 0.5}
    step = found["steps"][0]
    assert step["counts"]["re-sharded"] == 17
    assert step["changes"][0]["after"] == {
        "sharding_type": "table_wise",
        "kernel": "fused",
        "ranks": "r3",
    }
    assert sum(step["received"]) == step["move_bytes"] == sum(step["sent"])
