"""The key depends on what decides the plan, and on nothing else."""

from dataclasses import replace

import pytest

from fastplan.cache.differences import differences, first_differences
from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.spec.request import Partitioner, Proposer
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table

TABLES = [table(f"t{i}", 1000 * (i + 1), 64) for i in range(4)]
REQUEST = request(TABLES, 8, 4, ALL_TYPES)


def canonical(made=REQUEST, search=DEFAULT_SEARCH, ranks=8, **context):
    return canonical_request(made, search, ranks=ranks, context=context)


def test_the_same_request_has_the_same_key():
    again = request([made._replace() for made in TABLES], 8, 4, ALL_TYPES)
    assert fingerprint(canonical()) == fingerprint(canonical(again))


def test_the_order_of_a_tables_options_does_not_matter():
    backwards = replace(REQUEST, menus=tuple(menu[::-1] for menu in REQUEST.menus))
    assert canonical(backwards) == canonical()


def test_menus_that_no_table_uses_and_their_numbers_do_not_matter():
    extra = replace(
        REQUEST,
        menus=(REQUEST.menus[0][:1], *REQUEST.menus),
        tables=tuple(made._replace(menu=1) for made in REQUEST.tables),
    )
    assert canonical(extra) == canonical()


def test_whole_numbers_and_floats_of_the_same_value_are_the_same_cost():
    whole = replace(
        REQUEST, tables=tuple(made._replace(fwd_a2a=4, bwd_sr=4) for made in REQUEST.tables)
    )
    assert canonical(whole) == canonical()


# Menus are compared by what is in them, not by their numbers.
@pytest.mark.parametrize("field", [name for name in TABLES[0]._fields if name != "menu"])
def test_every_field_of_a_table_is_part_of_the_key(field):
    value = getattr(TABLES[2], field)
    other = {str: "other", bool: True, int: 7, float: 0.5, type(None): "tower"}[type(value)]
    if isinstance(value, bool):
        other = not value
    changed = [*TABLES[:2], TABLES[2]._replace(**{field: other}), TABLES[3]]
    made = request(changed, 8, 4, ALL_TYPES)
    assert fingerprint(canonical(made)) != fingerprint(canonical())


@pytest.mark.parametrize(
    "changed",
    [
        lambda: canonical(replace(REQUEST, cost=replace(REQUEST.cost, hbm_to_ddr_bw=1.0))),
        lambda: canonical(request(TABLES[::-1], 8, 4, ALL_TYPES)),
        lambda: canonical(request(TABLES, 8, 4, ALL_TYPES[:3])),
        lambda: canonical(search=replace(DEFAULT_SEARCH, timeout_seconds=3.0)),
        lambda: canonical(search=replace(DEFAULT_SEARCH, proposers=(Proposer(kind="grid"),))),
        lambda: canonical(
            search=replace(DEFAULT_SEARCH, partitioner=Partitioner(sort_by_perf=True))
        ),
        lambda: canonical(ranks=16),
        lambda: canonical(torchrec="1.9.2"),
    ],
    ids=["cost", "order", "options", "time-out", "proposers", "partitioner", "ranks", "context"],
)
def test_everything_else_that_decides_the_plan_is_part_of_the_key(changed):
    assert fingerprint(changed()) != fingerprint(canonical())


def test_the_key_of_a_fixed_request_never_changes():
    assert fingerprint(canonical()) == "376af268622e2bcc4bf36b8fff9d7546a146839b"


def test_differences_name_table_and_field_with_old_and_new_value():
    changed = [TABLES[0], TABLES[1]._replace(rows=5, pooled=False), *TABLES[2:]]
    found = differences(canonical(), canonical(request(changed, 8, 4, ALL_TYPES)))
    assert [(d.field, d.old, d.new) for d in found] == [
        ("tables[sparse.t1].rows", 2000, 5),
        ("tables[sparse.t1].pooled", True, False),
    ]


def test_added_removed_and_reordered_tables_are_named():
    other = request([TABLES[2], TABLES[0], table("new", 1, 4)], 8, 4, ALL_TYPES)
    text = [str(d) for d in differences(canonical(), canonical(other))]
    assert 'tables[sparse.t1]: "present" -> "missing"' in text
    assert 'tables[sparse.new]: "missing" -> "present"' in text
    assert 'tables: "in one order" -> "in another order"' in text


def test_changed_settings_are_named_by_their_path():
    found = differences(canonical(), canonical(ranks=16, torchrec="1.9.2"))
    assert {d.field for d in found} == {"ranks", "context.torchrec"}


def test_long_lists_of_differences_are_cut():
    changed = request([made._replace(rows=1) for made in TABLES], 8, 4, ALL_TYPES)
    assert first_differences(canonical(), canonical(changed)).endswith("and 1 more")
    assert first_differences(canonical(), canonical()) == "nothing differs"
