"""The page's explanation of a table and its what-if, in a real browser."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import yaml

from fastplan.engine.layout import layout_of
from fastplan.engine.optimize import Optimize, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, rate, verify_plan
from fastplan.model.objectives import Objectives
from fastplan.model.plan import RANK, PlanRecord
from fastplan.model.request import Partitioner, Search
from fastplan.report.analysis import analyse
from fastplan.report.comparison import compare
from fastplan.report.estimates import estimates
from fastplan.report.explain import why_table
from fastplan.report.html import html_report
from fastplan.report.options import PlanOptions
from fastplan.report.units import format_bytes
from fastplan.report.what_if import MOST_TABLES, what_if_data
from tests.problems import ALL_TYPES, DEFAULT_PROPOSERS, GIB, request, table
from tests.report.samples import (
    bare,
    cluster_of,
    criteo,
    criteo_table_wise,
    large,
    plan_of,
    rated,
    small,
    with_names,
)
from tests.report.test_explain import hardware
from tests.report.test_html import NASTY
from tests.report.test_html_browser import free


def split():
    """Tables whose columns are split over ranks of two hosts."""
    tables = [table(f"t{i}", 40_000 * (i + 1), 128, pooling=2.0 + i) for i in range(5)]
    tables = [own._replace(min_partition=32) for own in tables]
    return plan_of(request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4, GIB // 8))


PLANS = {
    "criteo": criteo,
    "small": small,
    "split": split,
    "large": large,
    "nasty": lambda: with_names(NASTY),
    "hardware": hardware,
    "free": free,
}


@pytest.fixture
def show(browser, tmp_path):
    pages = []

    def show(plan, **options):
        path = tmp_path / "page.html"
        plans = [plan] if not isinstance(plan, list) else plan
        comparison = compare(plans, labels=list("abc")[: len(plans)]) if len(plans) > 1 else None
        path.write_text(html_report(plans, comparison), encoding="utf-8")
        pages.append(browser.open(path, **options))
        return pages[-1]

    yield show
    complaints = [complaint for page in pages[-1:] for complaint in page.complaints()]
    for page in pages:
        page.close()
    assert complaints == []


def open_table(page, name):
    script = f"[...document.querySelectorAll('td.name button')].find((b) => b.textContent.endsWith({json.dumps(name)})).click()"  # noqa: E501
    page.run(script)
    assert not page.run("document.getElementById('why').hidden")


def choose(page, number):
    page.run(f"document.querySelectorAll('#why-options input')[{number}].click()")


def place(page, number, value):
    page.run(
        f"(() => {{ const input = document.querySelectorAll('#why-places input')[{number}];"
        f" input.value = '{value}'; input.dispatchEvent(new Event('input')); }})()"
    )


def shown_rating(page):
    """The rating and the loads that the page shows, in full precision."""
    rating = float(page.run("document.getElementById('rating-after').value"))
    loads = page.run("[...document.querySelectorAll('#why-loads .after')].map((d) => d.value)")
    ranks = page.run("[...document.querySelectorAll('#why-loads tbody tr')].map((r) => "
                     "Number(r.dataset.rank))")  # fmt: skip
    return rating, dict(zip(ranks, map(float, loads), strict=True))


def core(options, position, option, ranks):
    """Rating and loads of the changed plan by the core."""
    plan = options.plan_with(position, option, np.asarray(ranks))
    rating = rate(options.problem, *plan)
    record = PlanRecord.of(options.space, *plan, rating)
    own = options.basis.record
    request_ = replace(options.basis, record=replace(record, table=own.table))
    return rating, estimates(request_).rank_total


@pytest.mark.parametrize("name", ["criteo", "small", "split"])
def test_loads_are_the_cores_to_the_last_bit(show, name):
    plan = PLANS[name]()
    page = show(plan)
    options = PlanOptions(plan.basis)
    for position in range(0, options.space.tables, 2):
        why = why_table(options, position)
        numbers = {options.pair(number): number for number in options.options(position)}
        open_table(page, why.table.name)
        shown = [own for own in why.outcomes if own.pair in numbers]
        for number, own in enumerate(shown):
            if own.ranks is None:
                continue
            choose(page, number)
            rating, loads = shown_rating(page)
            expected, by_rank = core(options, position, numbers[own.pair], own.ranks)
            assert rating == expected == own.rating
            assert list(loads.values()) == pytest.approx(by_rank.tolist(), rel=1e-12)
        choose(page, 0)
    assert shown_rating(page)[0] == options.rating
    assert page.texts("#why-changes li") == []


def test_a_shard_is_moved_to_another_rank(show):
    plan = criteo()
    page = show(plan)
    options = PlanOptions(plan.basis)
    position = next(
        i for i in range(options.space.tables)
        if options.pair(int(options.chosen[i])).sharding_type == "table_wise"
    )  # fmt: skip
    name = options.request.tables[position].name
    open_table(page, name)
    (before,) = options.table_ranks(position).tolist()
    for rank in range(8):
        place(page, 0, rank)
        rating, _ = shown_rating(page)
        assert rating == core(options, position, int(options.chosen[position]), [rank])[0]
        assert len(page.texts("#why-changes li")) == (rank != before)
    for bad in ("8", "-1", "", "1.5"):
        place(page, 0, bad)
        assert page.run("document.querySelector('#why-places input').ariaInvalid") == "true"
        assert shown_rating(page)[0] == rating


def test_shards_by_host_move_together(show):
    plan = small()
    page = show(plan)
    options = PlanOptions(plan.basis)
    assert options.pair(int(options.chosen[0])).sharding_type == "table_row_wise"
    open_table(page, options.request.tables[0].name)
    host = int(page.run("document.querySelector('#why-places input').value"))
    place(page, 0, 1 - host)
    ranks = np.arange(4) + 4 * (1 - host)
    assert shown_rating(page)[0] == core(options, 0, int(options.chosen[0]), ranks)[0]


def test_several_changes_add_up_and_are_undone(show):
    plan = criteo()
    page = show(plan)
    options = PlanOptions(plan.basis)
    changes = []
    for position in range(options.space.tables):
        if len(options.options(position)) > 1 and len(changes) < 3:
            open_table(page, options.request.tables[position].name)
            choose(page, len(options.options(position)) - 1)
            changes.append(position)
    count = len(page.texts("#why-changes li"))
    assert count == 3
    assert shown_rating(page)[0] != options.rating
    page.run("document.querySelector('#why-changes li > button').click()")
    assert len(page.texts("#why-changes li")) == count - 1
    page.run("document.getElementById('why-reset').click()")
    assert shown_rating(page)[0] == options.rating
    assert page.run("document.getElementById('why-export').hidden")


def crowded():
    """Three tables that are whole, on two ranks with room for one of them each."""
    tables = [table(f"t{i}", 1_000_000, 128, pooling=50.0 - 20 * i) for i in range(3)]
    return plan_of(request(tables, 2, 2, ("table_wise",)), cluster_of(2, 2, 700 << 20))


def test_overfull_ranks_are_marked(show):
    plan = crowded()
    page = show(plan)
    options = PlanOptions(plan.basis)
    fused = [at for at in range(3) if options.pair(int(options.chosen[at])).kernel == "fused"]
    first, second = (int(options.table_ranks(at)[0]) for at in fused)
    open_table(page, options.request.tables[fused[0]].name)
    assert page.texts("#why-verdict") == ["It fits."]
    place(page, 0, second)
    moved = options.plan_with(fused[0], int(options.chosen[fused[0]]), np.array([second]))
    assert "over its capacity" in verify_plan(options.problem, *moved, math.nan)
    assert f"Rank {second} lacks" in page.texts("#why-verdict")[0]
    assert "It fits" not in page.texts("#why-verdict")[0]
    over = page.texts(f"#why-loads [data-rank='{second}'] .bad")
    assert over
    assert over[0].startswith("Over: ")
    assert page.texts(f"#why-loads [data-rank='{first}'] .bad") == []


def test_an_option_that_does_not_fit_is_shown_where_least_lacks(show):
    plan = crowded()
    page = show(plan)
    options = PlanOptions(plan.basis)
    found = False
    for position in range(3):
        why = why_table(options, position)
        open_table(page, why.table.name)
        for number, own in enumerate(why.outcomes):
            if own.status == "does not fit":
                found = True
                choose(page, number)
                lack = format_bytes(own.lack.bytes)
                assert f"Rank {own.lack.rank} lacks {lack} of HBM." in page.texts("#why-verdict")[0]
                assert "Over: " in page.texts("#why-loads")[0]
                choose(page, 0)
    assert found


def test_it_works_by_keyboard(show):
    page = show(criteo())
    page.run("document.querySelector('td.name button').focus()")
    name = page.run("document.activeElement.textContent")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "why-title"
    assert page.texts("#why-title") == [name if "." in name else f"sparse.{name}"]
    page.run("document.querySelector('#why-options input:checked').focus()")
    count = page.run("document.querySelectorAll('#why-options input').length")
    if count > 1:
        page.press("ArrowRight")
        assert page.run("document.querySelectorAll('#why-options input')[1].checked")
    page.run("document.getElementById('why-close').focus()")
    page.press("Enter")
    assert page.run("document.getElementById('why').hidden")
    assert page.run("document.activeElement.textContent") == name


def planned_with(plan, found):
    """Sharding type and ranks by table of a plan with exported constraints and pins."""
    request_ = plan.basis.request
    tables, menus = [], list(request_.menus)
    for own in request_.tables:
        if fields := found["constraints"].get(own.name):
            menus.append(
                tuple(
                    item
                    for item in menus[own.menu]
                    if item.sharding_type in fields["sharding_types"]
                    and item.kernel in fields["compute_kernels"]
                )
            )
            own = own.with_menu(len(menus) - 1)
        tables.append(own)
    space = estimate(replace(request_, tables=tuple(tables), menus=tuple(menus)))
    search = Search(proposers=DEFAULT_PROPOSERS, partitioner=Partitioner())
    made = optimize(
        Problem(space, plan.basis.cluster),
        search,
        Optimize(time_budget=None, move_budget=100, objectives=Objectives(pins=found["pins"])),
        names=[(own.path, own.name) for own in tables],
    )
    assert made.found
    record = PlanRecord.of(space, made.options, made.ranks, made.rating)
    layout = layout_of(replace(request_, tables=tuple(tables), menus=tuple(menus)),
                       plan.basis.cluster, record)  # fmt: skip
    return {own.name: (own.sharding_type, own.shards[:, RANK].tolist()) for own in layout.tables}


def test_constraints_can_be_planned_with(show):
    plan = criteo()
    page = show(plan)
    options = PlanOptions(plan.basis)
    expected = {}
    pins = {}
    for position in (4, 9):
        why = why_table(options, position)
        open_table(page, why.table.name)
        choose(page, 1)
        numbers = {options.pair(number): number for number in options.options(position)}
        own = [each for each in why.outcomes if each.pair in numbers][1]
        kind, kernel = own.pair
        expected[why.table.name] = {"sharding_types": [kind], "compute_kernels": [kernel]}
        if kind not in ("row_wise", "data_parallel"):
            pins[why.table.name] = list(own.ranks)
    found = yaml.safe_load(page.run("document.getElementById('export-text').value"))
    assert found == {"constraints": expected, "pins": pins}
    page.run("document.querySelector('[name=export][value=json]').click()")
    again = json.loads(page.run("document.getElementById('export-text').value"))
    assert again == found
    assert pins
    planned = planned_with(plan, found)
    for name, ranks in pins.items():
        assert planned[name] == (expected[name]["sharding_types"][0], ranks)
    planner = pytest.importorskip("torchrec.distributed.planner.types")
    for fields in found["constraints"].values():
        planner.ParameterConstraints(**fields)


def test_names_of_others_are_exported_as_they_are(show):
    plan = with_names(NASTY)
    page = show(plan)
    count = page.run("document.querySelectorAll('td.name button').length")
    assert count == len(NASTY)
    for at in range(count):
        page.run(f"document.querySelectorAll('td.name button')[{at}].click()")
        choose(page, 1)
    found = json.loads(page.run(
        "(document.querySelector('[name=export][value=json]').click(), "
        "document.getElementById('export-text').value)"))  # fmt: skip
    assert set(found["constraints"]) == set(NASTY)
    page.run("document.querySelector('[name=export][value=yaml]').click()")
    assert yaml.safe_load(page.run("document.getElementById('export-text').value")) == found


@pytest.mark.parametrize("name", PLANS)
def test_it_has_room_at_400_and_1400_pixels(show, name):
    page = show(PLANS[name]())
    page.run("document.querySelector('td.name button').click()")
    assert "NaN" not in page.texts("#why")[0]
    last = page.run("document.querySelectorAll('#why-options input').length") - 1
    choose(page, last)
    for width in (400, 1400):
        page.resize(width)
        for dark in (False, True):
            page.media(dark=dark)
            assert page.run("document.documentElement.scrollWidth") <= width
            wide = page.run("[...document.querySelectorAll('#why *')].filter((e) => "
                            "e.getBoundingClientRect().right > innerWidth + 1).length")  # fmt: skip
            assert wide == 0


def test_a_large_page_says_what_is_left_out(show):
    plan = large()
    page = show(plan)
    assert f"{MOST_TABLES} of 1,000 tables" in page.texts("#why-note")[0]
    data = what_if_data(analyse(plan))
    row = data["order"][0]
    name = plan.layout.tables[row].name
    page.type_into("#filter-text", name)
    open_table(page, name)
    options = PlanOptions(plan.basis)
    choose(page, 1)
    position = next(i for i, t in enumerate(options.request.tables) if t.name == name)
    why = why_table(options, position)
    assert shown_rating(page)[0] == pytest.approx(why.outcomes[1].rating, rel=1e-12)
    assert len(page.texts("#why-loads tbody tr")) == 16


def test_plans_without_costs_have_no_explanations(show):
    for plan in (bare(criteo()), rated(small(), 123.0)):
        assert what_if_data(analyse(plan)) is None
        page = show(plan)
        assert page.run("document.querySelectorAll('td.name button').length") == 0


def test_each_of_two_plans_has_its_own(show):
    page = show([criteo(), criteo_table_wise()])
    for index, plan in enumerate([criteo(), criteo_table_wise()]):
        page.run(f"document.querySelectorAll('[name=plan]')[{index}].click()")
        page.run("document.querySelector('td.name button').click()")
        choose(page, 0)
        assert shown_rating(page)[0] == plan.basis.record.rating


def test_with_hardware_costs_the_page_says_that_it_computes_the_rating(show):
    page = show(hardware())
    page.run("document.querySelector('td.name button').click()")
    assert "Step" in page.texts("#why-options th")
    assert "The step is not computed here" in page.texts("#why-verdict")[0]
