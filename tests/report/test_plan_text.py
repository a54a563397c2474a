"""What `fastplan inspect` prints."""

import json
import re
from dataclasses import replace

import pytest

from fastplan.report.plan_text import inspect_json, inspect_text
from fastplan.report.terminal import Style, display_width
from tests.problems import GIB
from tests.report.samples import bare, criteo, criteo_row_wise, large, rated, small, with_names

NASTY = ["\x1b[2Jclear", "a\nb", "<b>", "x" * 500, "\u202eevil", "表" * 80]


@pytest.mark.parametrize("make", [small, criteo, criteo_row_wise, large])
@pytest.mark.parametrize("style", [Style(), Style(60), Style(80, unicode=False)])
def test_it_fits_a_page(make, style):
    for plan in (make(), bare(make())):
        lines = inspect_text(plan, style=style).splitlines()
        assert len(lines) <= 40
        assert max(map(display_width, lines)) <= style.width


def test_the_headline_says_model_cluster_engine_cache_and_key():
    plan = criteo()
    head = inspect_text(plan).splitlines()[:3]
    assert head[0] == "dlrm-criteo"
    assert head[1] == "26 tables, 122.0 GiB of weights, 8 ranks (1 host x 8)"
    assert head[2] == f"native, cache miss, key {plan.fingerprint[:12]}"


def test_the_hardware_is_named_when_known():
    head = inspect_text(criteo(notes={"sku": "a100\n"})).splitlines()[1]
    assert head.endswith(r"8 ranks (1 host x 8), a100\x0a")


def test_rating_worst_rank_balance_and_memory_are_there():
    text = inspect_text(criteo())
    where = r"on 4 ranks \(r0,3,5,6\), which tie for the worst: 44\.1 % compute"
    assert re.search(rf"rating   0\.651 ms est\. {where}", text)
    assert re.search(r"balance  worst rank 7\.3 % above the mean of 0\.607 ms", text)
    assert re.search(r"HBM      23\.9 GiB of 32\.0 GiB on rank 1, the fullest: 8\.1 GiB", text)


def test_equal_ranks_have_no_worst_one():
    text = inspect_text(criteo_row_wise())
    assert "on every rank" in text
    assert "all ranks cost the same" in text
    assert "worst:" not in text


def test_the_gap_is_there_when_known():
    assert "gap" not in inspect_text(small())
    assert re.search(
        r"gap +at most .* %; no plan is below", inspect_text(small(notes={"lower_bound": "0.1"}))
    )


def test_a_plan_that_does_not_fit_says_what_is_missing():
    plan = small()
    tiny = replace(plan.basis.cluster, rank_hbm=(1 << 20,) * 8)
    text = inspect_text(replace(plan, basis=replace(plan.basis, cluster=tiny)))
    assert "MiB over capacity" in text


def test_bars_are_split_by_compute_and_comms_and_as_long_as_the_load():
    lines = inspect_text(criteo()).splitlines()
    bars = [line for line in lines if re.match(r"  r\d+ .*█", line)]
    assert len(bars) == 8
    lengths = [line.count("█") + line.count("▒") for line in bars]
    assert lengths == sorted(lengths, reverse=True)
    assert all("▒" in line for line in bars)


def test_ascii_streams_get_ascii_only():
    text = inspect_text(with_names(NASTY), style=Style(unicode=False))
    assert text.isascii()
    assert "####" in text or "----" in text


def test_only_the_worst_of_many_ranks_are_shown_by_default():
    assert "the 8 worst of 1,024 ranks" in inspect_text(large())
    every = inspect_text(large(), ranks="all")
    assert len(re.findall(r"^  r\d+ ", every, re.MULTILINE)) == 1024


def test_all_tables_are_listed_when_asked_for():
    text = inspect_text(criteo(), tables=True)
    assert all(f"t_cat_{i} " in text for i in range(26))


def test_an_unknown_choice_of_ranks_is_refused():
    with pytest.raises(ValueError, match="`ranks` must be worst or all, not 'some'"):
        inspect_text(small(), ranks="some")


@pytest.mark.parametrize("tables", [False, True])
def test_names_cannot_write_to_the_terminal(tables):
    text = inspect_text(with_names(NASTY), tables=tables)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[2Jclear" in text
    assert max(map(display_width, text.splitlines())) <= 100


def test_colour_is_only_there_when_wanted():
    assert "\x1b" not in inspect_text(criteo())
    coloured = inspect_text(criteo(), style=Style(colour=True))
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == inspect_text(criteo())


def test_a_bare_layout_says_what_is_assumed():
    text = inspect_text(bare(criteo()))
    assert "only the layout of the plan is known" in text
    assert "elements of 4 bytes are assumed" in text
    assert "rating" not in text


def test_a_rating_without_costs_is_still_shown():
    text = inspect_text(rated(small(), 123.0))
    assert "rating   123.0 ms est." in text
    assert "costs are not shown" in text


def test_json_has_the_documented_keys_and_is_json():
    found = inspect_json(criteo())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == [
        *("name", "fingerprint", "notes", "ranks", "ranks_per_host", "rating"),
        *("torchrec_rating", "step", "lower_bound"),
        *("gap", "imbalance", "worst_rank", "fits", "costs", "memory", "tables", "assumptions"),
    ]
    assert all(key in inspect_json.__doc__ for key in found)
    assert found["rating"] == criteo().basis.record.rating
    assert max(found["costs"]["total"]) == pytest.approx(found["rating"], rel=1e-9)
    assert found["memory"]["hbm"]["capacity"] == [32 * GIB] * 8
    assert found["tables"][0]["ranks"] == list(range(8))


def test_json_of_a_bare_layout_has_nulls():
    found = json.loads(json.dumps(inspect_json(bare(criteo())), allow_nan=False))
    assert found["rating"] is None
    assert found["costs"] is None
    assert found["memory"]["hbm"]["headroom"] is None
