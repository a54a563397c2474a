"""The key depends on what decides the plan, and on nothing else."""

import copy
import json
import math
from dataclasses import replace

import pytest

from fastplan.cache import why_miss
from fastplan.cache.fingerprint import (
    canonical_request,
    fingerprint,
    parse_canonical,
    parse_search,
)
from fastplan.cache.why_miss import MissExplanation, differences, format_differences
from fastplan.model.request import Coefficients, MenuItem, Partitioner, Proposer
from tests.plans.samples import canonical_of, random_request
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table
from tests.trees import nodes

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


def test_only_columns_that_differ_are_compared_table_by_table(monkeypatch):
    read, value = set(), why_miss._Tables._value

    def noted(self, field, number):
        read.add(field)
        return value(self, field, number)

    monkeypatch.setattr(why_miss._Tables, "_value", noted)
    changed = [TABLES[0]._replace(rows=5), *TABLES[1:]]
    found = differences(canonical(), canonical(request(changed, 8, 4, ALL_TYPES)))
    assert [d.field for d in found] == ["tables[sparse.t0].rows"]
    assert read == {"path", "name", "rows"}


def test_a_table_with_other_options_is_named():
    menus = (REQUEST.menus[0], REQUEST.menus[0][:1])
    tables = [*REQUEST.tables[:3], REQUEST.tables[3]._replace(menu=1)]
    found = differences(canonical(), canonical(replace(REQUEST, menus=menus, tables=tuple(tables))))
    assert [d.field for d in found] == ["tables[sparse.t3].options"]


def test_added_removed_and_reordered_tables_are_named():
    other = request([TABLES[2], TABLES[0], table("new", 1, 4)], 8, 4, ALL_TYPES)
    text = [str(d) for d in differences(canonical(), canonical(other))]
    assert 'tables[sparse.t1]: "present" -> "missing"' in text
    assert 'tables[sparse.new]: "missing" -> "present"' in text
    assert 'tables: "in one order" -> "in another order"' in text


def test_changed_settings_are_named_by_their_path():
    found = differences(canonical(), canonical(ranks=16, torchrec="1.9.2"))
    assert {d.field for d in found} == {"ranks", "context.torchrec"}


def test_names_of_tables_play_no_tricks_in_differences():
    other = request([*TABLES, table("\x1b[2J\u202e", 1, 4)], 8, 4, ALL_TYPES)
    changed = differences(canonical(), canonical(other))
    told = MissExplanation(key="ab", same_key=("entry \x9b",), nearest="cd", changed=tuple(changed))
    for text in (format_differences(canonical(), canonical(other)), str(told)):
        assert "\\x1b[2J\\u202e" in text
        assert not any(sign in text for sign in "\x1b\u202e\x9b")


def test_long_lists_of_differences_are_cut():
    changed = request([made._replace(rows=1) for made in TABLES], 8, 4, ALL_TYPES)
    assert format_differences(canonical(), canonical(changed)).endswith("and 1 more")
    assert format_differences(canonical(), canonical()) == "nothing differs"


def read_back(canonical):
    made, document = parse_canonical(canonical)
    again = canonical_request(
        made, parse_search(document), ranks=document["ranks"], context=document["context"]
    )
    assert again == canonical
    return made, document


@pytest.mark.parametrize("seed", range(40))
def test_a_random_request_comes_back(seed):
    made, cluster, search = random_request(seed)
    found, document = read_back(canonical_of(made, cluster, search))
    assert found.cost == made.cost
    assert parse_search(document) == search
    assert len(found.tables) == len(made.tables)
    for table_found, table_made in zip(found.tables, made.tables, strict=True):
        items = {
            (*item[:3], found.coefficients[item.coefficients])
            for item in found.menus[table_found.menu]
        }
        assert items == {
            (*item[:3], made.coefficients[item.coefficients])
            for item in made.menus[table_made.menu]
        }
        assert repr(table_found._replace(menu=0)) == repr(table_made._replace(menu=0))


@pytest.mark.parametrize(
    "changes",
    [
        {"perf_inputs": math.inf},
        {"miss_rate": 0.25, "expected_lookups": -0.0},
        {"name": "<b>\x1b[31m\ud800", "path": ""},
        {"tower": ""},
        {"tower": "a"},
        {"min_partition": 32, "buckets": 40, "virtual": True},
    ],
    ids=range(6),
)
def test_odd_values_come_back(changes):
    tables = [*TABLES[:2], TABLES[2]._replace(**changes), TABLES[3]]
    found, _ = read_back(canonical(request(tables, 8, 4, ALL_TYPES)))
    assert repr(found.tables[2]) == repr(tables[2])


def test_odd_costs_come_back():
    cost = replace(
        REQUEST.cost, hbm_to_ddr_bw=math.inf, bw_world_all_gather=3, layout_rank_memory=(1, 2, 3)
    )
    coefficients = (
        Coefficients((1.0, 2.0, 3.0, math.nan), (4, 5.5, 6.0, 7.0)),
        Coefficients((0.1, 0.2, 0.3, 0.4), None),
    )
    menus = (
        (
            MenuItem("row_wise", "fused", 1.0, 0),
            MenuItem("table_wise", "fused", math.inf, 1),
            MenuItem("column_wise", "fused", 2, 1),
        ),
    )
    made = replace(REQUEST, cost=cost, coefficients=coefficients, menus=menus)
    found, document = read_back(canonical(made, custom=[["x", "y"]], text="ü"))
    assert found.cost == cost
    assert document["context"] == {"custom": [["x", "y"]], "text": "ü"}


def test_a_search_comes_back_with_its_state():
    search = replace(
        DEFAULT_SEARCH,
        proposers=(Proposer(kind="greedy", threshold=3, best_rating=0.1 + 0.2, inferior=2),),
        partitioner=Partitioner(memory_balanced=True, tolerance=0.5),
        timeout_seconds=1.5,
    )
    assert parse_search(read_back(canonical(search=search))[1]) == search


def at(value, path):
    for key in path:
        value = value[key]
    return value


SMALL = json.loads(canonical(request(TABLES[:2], 8, 4, ALL_TYPES[:2]), torchrec="1.8.0"))
NODES = list(nodes(SMALL))


def refused(document) -> str | None:
    """The error of reading a document; every other exception than ValueError is a failure."""
    try:
        parse_canonical(json.dumps(document).encode())
    except ValueError as error:
        return str(error)
    return None


def test_a_request_without_a_node_is_refused_and_the_field_is_named():
    for path in NODES:
        document = copy.deepcopy(SMALL)
        del at(document, path[:-1])[path[-1]]
        error = refused(document)
        if error is None:
            # Another context, other options or other proposers make another request.
            assert path[0] in ("context", "menus", "search"), path
            assert path[0] == "context" or isinstance(path[-1], int), path
        else:
            assert str(path[0]) in error, (path, error)


def test_a_node_of_another_type_is_refused_and_the_field_is_named():
    for path in NODES:
        original = at(SMALL, path)
        for other in [None, True, -1, 1.5, 10**30, "text", "inf", [], [[]], {}, {"a": 1}]:
            document = copy.deepcopy(SMALL)
            at(document, path[:-1])[path[-1]] = other
            error = refused(document)
            if error is not None:
                assert str(path[0]) in error, (path, other, error)
            elif type(other) is not type(original) and path[0] != "context":
                numbers = {type(other), type(original)} <= {int, float, str}
                optional = other is None or original is None or other in ([], {"a": 1}, [[]])
                assert numbers or optional or path[-1] == "all", (path, other)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(plan_version=2), "plan_version: must be 1, the only one"),
        (lambda d: d.update(plan_version=True), "plan_version: must be 1, the only one"),
        (lambda d: d.update(extra=1), "the request: has an unknown field 'extra'"),
        (lambda d: d.update(table_count=10**12), "table_count: must be a whole number"),
        (lambda d: d.update(table_count=3), "tables.name: must be one value per table"),
        (lambda d: d["tables"]["rows"].pop(), "tables.rows: must be one value per table"),
        (lambda d: d["tables"].update(rows=[1.0, 2.0]), "tables.rows[0]: must be a whole number"),
        (lambda d: d["tables"].update(dim={"all": 2**63}), "tables.dim[0]: must be a whole"),
        (lambda d: d["tables"].update(usage={"all": "x"}), "tables.usage[0]: must be one of base_"),
        (lambda d: d["tables"].update(menu={"all": 1}), "tables.menu[0]: must be the number of"),
        (lambda d: d["tables"].update(menu={"all": -1}), "tables.menu[0]: must be the number of"),
        (lambda d: d["tables"].update(name={"all": "t"}), "tables.name: is the same for all"),
        (lambda d: d["tables"].update(name=["t", "t"]), "tables.name: duplicate table"),
        (lambda d: d["tables"].update(tower={"all": 3}), "tables.tower[0]: must be a string"),
        (lambda d: d["tables"].update({"\x1b[31m": 1}), "unknown field '\\x1b[31m'"),
        (lambda d: d["cost"].update(pipeline="x"), "cost.pipeline: must be one of none"),
        (lambda d: d["cost"].update(layout_world_size=0), "cost.layout_world_size: must be"),
        (lambda d: d["cost"].update(prefetch_coefficients=[1]), "prefetch_coefficients: must be 3"),
        (lambda d: d["menus"][0][0].pop(), "menus[0][0]: must be sharding type, kernel"),
        (lambda d: d["menus"][0][0].__setitem__(0, "x"), "menus[0][0][0]: must be one of data_"),
        (lambda d: d["menus"][0][0].__setitem__(3, [1]), "menus[0][0][3]: must be four numbers"),
        (lambda d: d["search"]["proposers"][0].update(kind="x"), "search.proposers[0].kind: must"),
    ],
)
def test_the_error_says_where_and_what(change, text):
    document = copy.deepcopy(SMALL)
    change(document)
    assert text in refused(document)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"a": NaN}', b"9" * 5000, b"{}"],
    ids=range(9),
)
def test_what_is_no_request_is_refused(data):
    with pytest.raises(ValueError, match=r"request|context"):
        parse_canonical(data)


def test_numbers_that_are_not_finite_are_refused():
    text = json.dumps(SMALL).replace('"all": 512.0', '"all": 1e999', 1)
    assert text != json.dumps(SMALL)
    with pytest.raises(ValueError, match="number that is not finite"):
        parse_canonical(text.encode())
