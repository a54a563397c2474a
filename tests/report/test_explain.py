"""Why a table has its option: compared with every placement there is, rated by the core."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.problem import Problem
from fastplan.engine.solve import rate, verify_plan
from fastplan.report.binding import explain_model, helps_of
from fastplan.report.binding_text import model_json, model_text
from fastplan.report.estimates import EstimateUnavailable
from fastplan.report.explain import (
    MissingRequest,
    NoSuchTable,
    explain_table,
    find_table,
    why_table,
)
from fastplan.report.explain_text import reasons, table_json, table_text
from fastplan.report.options import PlanOptions, is_same, run_costs
from tests.hardware import hardware_costs
from tests.problems import ALL_TYPES, GIB, menu_of, request, table
from tests.report.samples import bare, cluster_of, criteo, plan_of, rated, small, with_names

UNIFORM = ("row_wise", "data_parallel")


def tight(seed=0, hosts=2, group=2, hbm=GIB, types=ALL_TYPES):
    """A few tables whose columns are split, on few ranks with little memory."""
    rng = np.random.default_rng(seed)
    tables = []
    for i in range(4):
        rows = int(10 ** rng.uniform(4.5, 6.0))
        own = table(f"t{i}", rows, int(rng.choice((64, 96))), pooling=rng.uniform(1, 40))
        tables.append(own._replace(min_partition=int(rng.choice((32, 40, 64)))))
    ranks = hosts * group
    cluster = replace(cluster_of(ranks, group, hbm), local_world_size=group)
    uneven = tuple(hbm // (1 + i % 3) for i in range(ranks))
    cluster = replace(cluster, rank_hbm=uneven)
    return plan_of(request(tables, ranks, group, types), cluster)


def every_placement(options, position, option):
    """Every way to place the shards of an option, all others as they are."""
    shards = len(options.shards(option).cost)
    if options.pair(option).sharding_type in UNIFORM:
        yield tuple(range(options.ranks))
    else:
        yield from itertools.product(range(options.ranks), repeat=shards)


def best_of_all(options, position, option, problem=None):
    """The best rating, or step, of all plans that the core accepts; infinite without one."""
    found = math.inf
    for ranks in every_placement(options, position, option):
        plan = options.plan_with(position, option, np.array(ranks))
        if verify_plan(problem or options.problem, *plan, math.nan):
            continue
        value = rate(options.problem, *plan) if options.step is None else options.step_with(*plan)
        found = min(found, value)
    return found


def numbers(options, position):
    return {options.pair(option): option for option in options.options(position)}


@pytest.mark.parametrize("seed", range(6))
def test_no_placement_is_better_than_the_one_that_is_told(seed):
    plan = tight(seed, hbm=(GIB // 4, GIB, 4 * GIB)[seed % 3])
    options = PlanOptions(plan.basis)
    statuses = set()
    for position in range(4):
        why = why_table(options, position)
        by_pair = numbers(options, position)
        for own in why.outcomes[1:]:
            best = best_of_all(options, position, by_pair[own.pair])
            statuses.add(own.status)
            if own.status == "does not fit":
                assert best == math.inf
                continue
            assert own.exact
            assert is_same(own.rating, best)
            assert own.rise == own.rating - why.value
            expected = "tie" if is_same(best, why.value) else "slower"
            assert own.status == ("better" if own.rise < -1e-9 * best else expected)
        planned = best_of_all(options, position, by_pair[why.planned.pair])
        found = why.value if why.elsewhere is None else why.elsewhere.rating
        assert is_same(found, planned)
    assert "slower" in statuses


def test_tables_of_a_tower_stay_on_its_host():
    tables = [table(f"t{i}", 10_000 * (i + 1), 64, pooling=(2, 900, 3, 4)[i]) for i in range(4)]
    tables = [own._replace(tower="a" if i < 2 else None) for i, own in enumerate(tables)]
    kinds = ("table_row_wise", "table_column_wise", "row_wise", "data_parallel")
    options = PlanOptions(plan_of(request(tables, 4, 2, kinds), cluster_of(4, 2)).basis)
    statuses = set()
    for position in range(4):
        by_pair = numbers(options, position)
        for own in why_table(options, position).outcomes[1:]:
            best = best_of_all(options, position, by_pair[own.pair])
            statuses.add(own.status)
            if own.complaint:
                assert best == math.inf
            else:
                assert is_same(own.rating, best)
    assert "slower" in statuses


def test_small_memory_has_options_that_do_not_fit():
    options = PlanOptions(tight(hbm=GIB // 4).basis)
    outcomes = [own for at in range(4) for own in why_table(options, at).outcomes]
    assert "does not fit" in {own.status for own in outcomes}


def more_memory(options, bytes_):
    cluster = options.basis.cluster
    grown = replace(cluster, rank_hbm=tuple(size + bytes_ for size in cluster.rank_hbm))
    return Problem(options.space, grown)


def test_the_memory_that_is_told_is_just_enough():
    seen = 0
    for seed in range(4):
        options = PlanOptions(tight(seed, hbm=GIB // 12).basis)
        for position in range(4):
            why = why_table(options, position)
            for own in why.outcomes:
                if own.roomy is None or own.roomy.tier != "hbm":
                    continue
                option = numbers(options, position)[own.pair]
                enough = more_memory(options, own.roomy.more)
                short = more_memory(options, own.roomy.more - 1)
                best = best_of_all(options, position, option, enough)
                if why.wins(own.roomy.value):
                    seen += 1
                    assert why.wins(best)
                    assert not why.wins(best_of_all(options, position, option, short))
                else:
                    assert not why.wins(best_of_all(options, position, option, more_memory(
                        options, 1 << 50)))  # fmt: skip
                lack = own.lack
                rooms = more_memory(options, lack.bytes)
                assert best_of_all(options, position, option, rooms) < math.inf
                less = more_memory(options, lack.bytes - 1)
                assert best_of_all(options, position, option, less) == math.inf
    assert seen


def cheaper(options, option, part, share):
    """The problem with a part of an option's cost cut."""
    names = {
        "lookup": ("run_fwd_compute", "run_bwd_compute", "run_prefetch_compute"),
        "exchange": ("run_fwd_comms", "run_bwd_comms"),
    }
    names["cost"] = names["lookup"] + names["exchange"]
    columns = {}
    for name in names[part]:
        columns[name] = getattr(options.space, name).copy()
        columns[name][options.runs(option)] *= 1 - share
    return Problem(replace(options.space, **columns), options.basis.cluster)


@pytest.mark.parametrize("seed", range(6))
def test_an_option_wins_with_the_cut_that_is_told_and_not_with_less(seed):
    options = PlanOptions(tight(seed).basis)
    seen = 0
    for position in range(4):
        why = why_table(options, position)
        for own in why.outcomes:
            if own.cut is None:
                continue
            seen += 1
            option = numbers(options, position)[own.pair]

            def best(share, option=option, own=own, position=position):
                problem = cheaper(options, option, own.cut.part, share)
                found = math.inf
                for ranks in every_placement(options, position, option):
                    plan = options.plan_with(position, option, np.array(ranks))
                    if not verify_plan(problem, *plan, math.nan):
                        found = min(found, rate(problem, *plan))
                return found

            there = best(own.cut.share)
            assert is_same(there, why.value) if own.cut.ties else there < why.value
            before = best(max(0.0, own.cut.share - 1e-3))
            assert own.cut.share < 1e-3 or (before > why.value and not is_same(before, why.value))
    assert seen


def test_without_its_cost_is_the_load_of_the_others():
    options = PlanOptions(criteo().basis)
    for position in range(options.space.tables):
        why = why_table(options, position)
        option = int(options.chosen[position])
        free = cheaper(options, option, "cost", 1.0)
        kept = options.plan_with(position, option, options.table_ranks(position))
        assert is_same(why.without, rate(free, *kept))
        assert why.limits == (not is_same(why.without, why.value))


def test_options_of_other_tables_are_told_and_what_they_would_cost():
    tables = [table(f"t{i}", 200_000 * (i + 1), 64, pooling=2.0 + i) for i in range(6)]
    tables[0] = tables[0]._replace(menu=1)
    asked = request(tables, 8, 4, ALL_TYPES)
    asked = replace(asked, menus=(asked.menus[0], menu_of(("table_wise",))))
    plan = plan_of(asked, cluster_of(8, 4))
    why = explain_table(plan, "t0")
    forbidden = {own.pair: own for own in why.outcomes if own.status == "not allowed"}
    assert ("row_wise", "fused") in forbidden
    assert ("table_wise", "fused") not in forbidden
    assert forbidden["row_wise", "fused_uvm_caching"].rating is None  # depends on the table's cache
    allowed = replace(
        asked, tables=(tables[0]._replace(menu=0), *tables[1:]), menus=(asked.menus[0], ())
    )
    freed = replace(plan, basis=replace(plan.basis, request=allowed))
    free = {own.pair: own for own in explain_table(freed, "t0").outcomes}
    for pair, own in forbidden.items():
        assert own.modules == ("sparse",)
        if own.rating is not None:
            assert own.rating == free[pair].rating
            assert own.ranks == free[pair].ranks
    (first, *_) = reasons(why, forbidden["row_wise", "fused"])
    assert "the table's own constraints" in first


def hardware(tables=5, ranks=4):
    made = [table(f"t{i}", 300_000 * (i + 1), 128, pooling=3.0 + 2 * i) for i in range(tables)]
    kinds = ("table_wise", "row_wise", "column_wise", "data_parallel")
    costs = hardware_costs(random.Random(3), tables, ranks)
    asked = replace(request(made, ranks, ranks, kinds), hardware=costs)
    return plan_of(asked, cluster_of(ranks, ranks))


def test_with_hardware_costs_options_are_compared_by_the_step():
    plan = hardware()
    options = PlanOptions(plan.basis)
    assert options.step is not None
    for position in range(options.space.tables):
        why = why_table(options, position)
        assert why.measure == "step"
        assert why.value == options.step
        for own in why.outcomes[1:]:
            best = best_of_all(options, position, numbers(options, position)[own.pair])
            if own.exact:
                assert is_same(own.step, best)
            else:
                assert own.step >= best * (1 - 1e-9)
            assert own.status == why_status(own.step, why.value)


def why_status(value, plan):
    return "tie" if is_same(value, plan) else "better" if value < plan else "slower"


def test_a_table_is_found_by_its_name_and_by_its_path():
    plan = small()
    assert find_table(plan, "t3") == find_table(plan, "sparse.t3")
    with pytest.raises(NoSuchTable, match="the plan has no table t33; did you mean t3"):
        find_table(plan, "t33")
    with pytest.raises(NoSuchTable, match=r"its tables are .* and 3 more"):
        find_table(plan, "###")
    tables = [table("same", 1000, 64)._replace(path=path) for path in ("a", "b")]
    twice = plan_of(request(tables, 8, 4, ALL_TYPES), cluster_of(8, 4))
    with pytest.raises(NoSuchTable, match=r"give one as [ab]\.same, [ab]\.same"):
        find_table(twice, "same")
    assert find_table(twice, "a.same") != find_table(twice, "b.same")


def test_a_plan_that_can_not_be_explained_says_why():
    for asked in (lambda plan: explain_table(plan, "t0"), explain_model):
        with pytest.raises(MissingRequest, match="no request, which has the options"):
            asked(bare(small()))
        with pytest.raises(EstimateUnavailable, match="custom estimator or perf model"):
            asked(rated(small(), 123.0))


def test_replanned_is_torchrecs_search_with_one_option():
    plan = tight(3)
    why = explain_table(plan, "t1", replan=True)
    assert why.planned.replanned == plan.basis.record.rating
    for own in why.outcomes:
        menu = tuple(
            item for item in menu_of(ALL_TYPES) if (item.sharding_type, item.kernel) == own.pair
        )
        tables = list(plan.basis.request.tables)
        number = find_table(plan, "t1")
        at = int(plan.basis.record.table[number])
        tables[at] = tables[at]._replace(menu=1)
        asked = replace(
            plan.basis.request,
            tables=tuple(tables),
            menus=(*plan.basis.request.menus, menu),
        )
        try:
            again = plan_of(asked, plan.basis.cluster)
        except AssertionError:
            assert own.replanned == math.inf
        else:
            assert own.replanned == again.basis.record.rating
    assert "all tables planned again" in table_text(why)
    with pytest.raises(MissingRequest, match="no search settings"):
        explain_table(replace(plan, basis=replace(plan.basis, canonical=b"")), "t1", replan=True)


def test_texts_name_the_option_and_what_would_change_it():
    why = explain_table(tight(2, hbm=GIB // 4), "t3")
    text = table_text(why)
    assert all(len(line) <= 100 for line in text.splitlines())
    for own in why.outcomes:
        if own.status != "not allowed":
            assert f"{own.pair.sharding_type} {own.pair.kernel}" in text
        for sentence in reasons(why, own):
            assert sentence
    document = table_json(why)
    assert document["table"] == "sparse.t3"
    assert [each["status"] for each in document["options"]] == [o.status for o in why.outcomes]
    assert document["options"][0]["why"] == ["in the plan"]


def test_names_can_not_break_the_text():
    names = ["evil\n\x1b[31m", "b", "c", "d", "e", "f"]
    text = table_text(explain_table(with_names(names), names[0]))
    assert "\x1b" not in text
    assert "evil\\x0a\\x1b[31m" in text


def test_the_model_names_its_slowest_rank_and_the_tables_there():
    why = explain_model(criteo(notes={"lower_bound": "0.62"}))
    text = model_text(why)
    costs = why.analysis.costs
    assert f"rank {costs.worst_rank} is the slowest" in text
    assert "no plan is rated below 0.620 ms" in text
    assert [own.table.name for own in why.tables] == [
        why.analysis.tables[index].name for index in why.analysis.pinning[:10]
    ]
    for own in why.helps:
        assert own.value < own.table.value
        assert own in helps_of(own.table)
    document = model_json(why)
    assert document["worst_rank"] == costs.worst_rank
    assert len(document["helps"]) == len(why.helps)


def test_memory_and_constraints_bind_if_more_of_them_would_help():
    tables = [table(f"t{i}", 1_000_000, 128, pooling=500.0 - 499 * i) for i in range(2)]
    asked = request(tables, 2, 2, ("table_wise", "row_wise"))
    tables = [tables[0]._replace(menu=1), tables[1]]
    asked = replace(asked, tables=tuple(tables), menus=(asked.menus[0], menu_of(("table_wise",))))
    assert "constraint" in explain_model(plan_of(asked, cluster_of(2, 2))).binds
    little = request([table("t", 1_000_000, 128, pooling=5.0)], 2, 2, ("table_wise",))
    why = explain_model(plan_of(little, cluster_of(2, 2, 400 << 20)))
    assert why.binds == ("memory",)
    (help,) = why.helps
    assert help.outcome.pair == ("table_wise", "fused")
    assert "of HBM on each rank" in model_text(why)
    assert explain_model(small()).binds == ("rank",)


def test_costs_are_added_as_the_core_adds_them():
    options = PlanOptions(criteo().basis)
    total = options.loads.cost.max()
    assert total == options.rating == criteo().basis.record.rating
    assert (run_costs(options.space) == options.run_cost).all()
