"""Structs are read from documents; errors name file, line, place and what would be right."""

import math
from typing import Annotated, Any

import pytest
from msgspec import UNSET, Struct, UnsetType, defstruct, field

from fastplan.files.codec import Mismatch, decode, decode_value
from fastplan.files.document import SpecError, document_of, parse_document
from fastplan.files.kinds import (
    Text,
    any_number,
    bandwidth,
    choice,
    number,
    size,
    whole,
    with_problem,
)

KERNELS = ("dense", "fused", "fused_uvm", "fused_uvm_caching")


class Cache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ratio: Annotated[float, number(0, 1)] = 0.2
    passes: Annotated[int, whole()] | None = None


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Text
    rows: Annotated[int, whole()]
    dim: Annotated[int, whole(1)] = 8
    pooling: tuple[Annotated[float, number(0)], ...] = (1.0,)
    kernels: tuple[Annotated[str, choice(KERNELS)], ...] = ()
    weighted: bool = False
    cache: Cache | None = None


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tables: tuple[Table, ...] = ()
    modules: dict[Text, Cache] = field(default_factory=dict)
    weights: dict[Annotated[str, choice(KERNELS)], Annotated[float, number()]] = field(
        default_factory=dict
    )
    pair: (
        Annotated[
            tuple[Annotated[float, number()], Annotated[float, number()]],
            with_problem("must be two"),
        ]
        | None
    ) = None
    anything: Any = None
    hbm: Annotated[int, size()] | UnsetType = UNSET
    pod: Annotated[int, whole(1)] | UnsetType | None = UNSET


def read(text, kind=File, name="m.yaml"):
    return decode(parse_document(text.encode(), name), kind)


def refusal(text, kind=File, name="m.yaml"):
    with pytest.raises(SpecError) as caught:
        read(text, kind, name)
    return caught.value


def value_as(kind, value):
    """What a field of that type reads."""
    return decode(document_of({"x": value}, "m"), defstruct("X", [("x", kind)])).x


def problem(kind, value):
    with pytest.raises(SpecError) as caught:
        value_as(kind, value)
    assert caught.value.place == "x"
    return caught.value.problem


def test_fields_are_read():
    content = read(
        """
tables:
  - {name: users, rows: 40M, dim: 128, pooling: [1, 2.5], kernels: fused, cache: {ratio: 0.5}}
modules: {"a b": {passes: 1e3}}
weights: {fused: 2}
pair: [1, 2]
anything: {at: [all]}
"""
    )
    assert content.tables == (
        Table(
            name="users",
            rows=40_000_000,
            dim=128,
            pooling=(1.0, 2.5),
            kernels=("fused",),
            cache=Cache(ratio=0.5),
        ),
    )
    assert content.modules == {"a b": Cache(passes=1000)}
    assert content.weights == {"fused": 2.0}
    assert (content.pair, content.anything) == ((1.0, 2.0), {"at": ["all"]})
    assert (content.hbm, content.pod) == (UNSET, UNSET)


def test_a_part_of_a_document_is_read_with_its_own_places():
    document = parse_document(b"a:\n  - {ratio: 0.1}\n  - {ratio: 2}\n", "m.yaml")
    assert decode(document, Cache, ("a", 0)) == Cache(ratio=0.1)
    with pytest.raises(SpecError, match=r"^m.yaml:3: a\[1\].ratio: must be at most 1, not 2"):
        decode(document, Cache, ("a", 1))


# The mapping as a whole


@pytest.mark.parametrize(
    ("value", "found"), [([1], "a list"), ("x", "'x'"), (3, "3"), (True, "true")]
)
def test_what_is_no_mapping_is_refused(value, found):
    with pytest.raises(SpecError) as caught:
        decode(document_of({"tables": [value]}, "m"), File)
    assert str(caught.value) == f"m: tables[0]: must be a mapping, not {found}"


def test_an_empty_file_is_called_so():
    assert str(refusal("")) == "m.yaml:1: is empty"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("polling", "did you mean `pooling`?"),
        ("Rows", "did you mean `rows`?"),
        ("kernel", "did you mean `kernels`?"),
        ("zzz", "known are name, rows, dim, pooling, kernels, weighted, cache"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_one(name, advice):
    error = refusal(f"rows: 1\n{name}:\n  - 1\n", Table)
    assert str(error) == f"m.yaml:2: unknown field `{name}`; {advice}"


def test_an_unknown_field_of_json_has_its_line_too():
    text = '{"name": "x", "rows": 1,\n "cache": {\n  "ratio": 1,\n  "ration": 2}}'
    error = refusal(text, Table, "m.json")
    assert str(error) == "m.json:4: cache: unknown field `ration`; did you mean `ratio`?"


def test_names_that_are_long_or_not_printable_are_quoted():
    with pytest.raises(SpecError) as caught:
        decode(document_of({"\x1b[31m\n<script>": 1}, "m"), Cache)
    assert caught.value.problem == "unknown field '\\x1b[31m\\n<script>'; known are ratio, passes"
    with pytest.raises(SpecError) as caught:
        decode(document_of({"x" * 10**6: 1}, "m"), Cache)
    assert len(caught.value.problem) < 120


def test_of_very_many_known_names_some_are_listed():
    kind = defstruct("Many", [(f"field{i}", int, 0) for i in range(1000)])
    with pytest.raises(SpecError) as caught:
        decode(document_of({"?": 1}, "m"), kind)
    assert caught.value.problem.endswith("field38, field39 and 960 more")


# Missing fields and null


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("tables:\n  - {name: x, rows: 1}\n  - name: y\n    dim: 1\n", "m.yaml", 3),
        ('{"tables": [\n {"name": "x", "rows": 1},\n {"name": "y",\n  "dim": 1}]}', "m.json", 3),
    ],
)
def test_a_missing_field_has_the_line_of_its_mapping(text, name, line):
    assert str(refusal(text, name=name)) == f"{name}:{line}: tables[1].rows: is missing"


def test_null_takes_the_default_but_is_no_required_field():
    text = "name: x\nrows: 1\ndim: ~\npooling: ~\ncache: {passes: ~, ratio: ~}"
    assert read(text, Table) == Table(name="x", rows=1, cache=Cache())
    assert str(refusal("name: x\nrows: ~", Table)) == "m.yaml:2: rows: must not be null"


def test_null_is_told_from_what_is_left_out_where_that_differs():
    assert read("pod: ~").pod is None
    assert read("{}").pod is UNSET
    assert str(refusal("hbm: ~")) == "m.yaml:1: hbm: must not be null"
    assert str(refusal("tables:\n  -\n")) == "m.yaml:2: tables[0]: must not be null"


# What is inside


def test_places_go_on_inside():
    assert refusal('modules: {"b c": {ratio: x}}').place == 'modules["b c"].ratio'
    error = refusal("modules:\n  a: {ratio: 1}\n  b:\n    ratio: 0.5\n    passes: x\n")
    assert (error.line, error.place) == (5, "modules.b.passes")


@pytest.mark.parametrize(("value", "found"), [("{a: 1}", "a mapping"), ("x", "'x'")])
def test_structs_come_in_lists(value, found):
    assert refusal(f"tables: {value}").problem == f"must be a list of mappings, not {found}"


def test_a_mapping_must_be_one():
    assert str(refusal("modules: [1]")) == "m.yaml:1: modules: must be a mapping, not a list"
    assert str(refusal("weights: 3")) == "m.yaml:1: weights: must be a mapping, not 3"


def test_the_keys_of_a_mapping_may_be_choices():
    error = refusal("weights:\n  fused: 1\n  fusd: 2\n")
    assert str(error) == "m.yaml:3: weights: unknown field `fusd`; did you mean `fused`?"


def test_a_list_of_so_many_says_what_they_are():
    for text in ("pair: 1", "pair: [1]", "pair: [1, 2, 3]"):
        assert str(refusal(text)) == "m.yaml:1: pair: must be two"
    assert str(refusal("pair: [1, x]")) == "m.yaml:1: pair[1]: must be a number, not 'x'"


def test_each_of_a_list_is_checked_at_its_place():
    error = refusal("name: x\nrows: 1\nkernels:\n  - fused\n  - dence\n", Table)
    assert (error.line, error.place) == (5, "kernels[1]")
    text = '{"name": "x", "rows": 1, "kernels": ["fused",\n\n "dence"]}'
    error = refusal(text, Table, "m.json")
    assert (error.line, error.place) == (3, "kernels[1]")
    assert refusal("name: x\nrows: 1\nkernels: [[fused]]", Table).place == "kernels[0]"


def test_a_single_one_counts_as_a_list_of_one():
    assert value_as(tuple[Text, ...], "a") == ("a",)
    assert value_as(tuple[Annotated[int, whole()], ...], "40M") == (40_000_000,)
    assert value_as(tuple[Annotated[float, number()], ...], 2) == (2.0,)
    assert value_as(tuple[Annotated[int, size()], ...], "1KiB") == (1024,)
    assert value_as(tuple[Text, ...], []) == ()


# Values


@pytest.mark.parametrize(("value", "found"), [(3, "3"), (True, "true"), (0.5, "0.5")])
def test_numbers_are_no_texts_without_quotes(value, found):
    assert problem(Text, value) == f"must be a string, not {found}; put it in quotes"


@pytest.mark.parametrize(
    ("value", "end"),
    [
        ("fusd", ", not 'fusd'; did you mean `fused`?"),
        ("FUSED-UVM", ", not 'FUSED-UVM'; did you mean `fused_uvm`?"),
        ("zzz", ", not 'zzz'"),
        ("", ", not ''"),
        (1, ", not 1"),
        ({"a": 1}, ", not a mapping"),
        ("x" * 10**6, "..."),
    ],
)
def test_a_choice_must_be_one_of_them(value, end):
    found = problem(Annotated[str, choice(KERNELS)], value)
    assert found.startswith("must be one of dense, fused, fused_uvm, fused_uvm_caching, not ")
    assert found.endswith(end)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7), (4e7, 40_000_000), ("40M", 40_000_000), ("1e6", 10**6), ("7", 7), (2**63 - 1,) * 2],
)
def test_whole_numbers_may_be_written_short(value, expected):
    found = value_as(Annotated[int, whole()], value)
    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "limits", "expected"),
    [
        ("x", (1,), "must be a whole number of at least 1, not 'x'"),
        (0, (1,), "must be a whole number of at least 1, not 0"),
        (-1, (), "must be a whole number of at least 0, not -1"),
        (1.5, (), "must be a whole number of at least 0, not 1.5"),
        (True, (), "must be a whole number of at least 0, not true"),
        (9, (0, 8), "must be a whole number from 0 to 8, not 9"),
        ("9k", (2, 8), "must be a whole number from 2 to 8, not '9k'"),
        (2**63, (), f"must be a whole number from 0 to {2**63 - 1}, not {2**63}"),
        ("1e999", (), f"must be a whole number from 0 to {2**63 - 1}, not '1e999'"),
        (math.inf, (), "must be a whole number of at least 0, not inf"),
        (math.nan, (), "must be a whole number of at least 0, not nan"),
        ([1], (), "must be a whole number of at least 0, not a list"),
    ],
)
def test_a_whole_number_must_be_whole_and_within_bounds(value, limits, expected):
    assert problem(Annotated[int, whole(*limits)], value) == expected


def test_a_whole_number_may_be_negative_where_that_is_allowed():
    assert value_as(Annotated[int, whole(-10)], -5) == -5
    assert value_as(Annotated[int, whole(-1000)], "-1k") == -1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, 7.0), (0.5, 0.5), ("1e6", 1e6), ("1e-3", 1e-3), ("-2.5", -2.5), (".5", 0.5), ("7", 7.0)],
)
def test_numbers_are_floats(value, expected):
    found = value_as(Annotated[float, number()], value)
    assert found == expected
    assert type(found) is float


@pytest.mark.parametrize(
    ("value", "limits", "expected"),
    [
        ("x", (), "must be a number, not 'x'"),
        ("", (), "must be a number, not ''"),
        ("40M", (), "must be a number, not '40M'"),
        ("1_0", (), "must be a number, not '1_0'"),
        ("0x10", (), "must be a number, not '0x10'"),
        (" 1", (), "must be a number, not ' 1'"),
        (True, (), "must be a number, not true"),
        (math.inf, (), "must be a number, not inf"),
        (math.nan, (), "must be a number, not nan"),
        ("nan", (), "must be a number, not 'nan'"),
        ("1e999", (), "must be a number, not '1e999'"),
        ([1], (), "must be a number, not a list"),
        (-1, (0,), "must be at least 0, not -1"),
        (1.5, (0, 1), "must be at most 1, not 1.5"),
        (1e19, (), "must be at most 1e+18, not 1e+19"),
    ],
)
def test_a_number_must_be_finite_and_within_bounds(value, limits, expected):
    assert problem(Annotated[float, number(*limits)], value) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [("x: [.inf, -.inf, .nan]", "m.yaml"), ('{"x": ["inf", "-inf", "nan"]}', "m.json")],
)
def test_numbers_that_are_not_finite_are_read_where_allowed(text, name):
    kind = defstruct("X", [("x", tuple[Annotated[float, any_number()], ...])])
    first, second, third = read(text, kind, name).x
    assert (first, second) == (math.inf, -math.inf)
    assert math.isnan(third)
    assert problem(Annotated[float, any_number()], 1e300) == "must be at most 1e+18, not 1e+300"


@pytest.mark.parametrize("value", ["true", 0, 1, "no"])
def test_a_flag_is_true_or_false(value):
    assert problem(bool, value).startswith("must be true or false, not ")


def test_sizes_and_bandwidths_have_units():
    assert value_as(Annotated[int, size()], "80GiB") == 80 * 2**30
    assert value_as(Annotated[float, bandwidth()], "600GiB/s") == 600 * 1024**3 / 1000
    assert "such as 80GiB" in problem(Annotated[int, size()], "600GiB/s")
    assert "such as 900GB/s" in problem(Annotated[float, bandwidth()], "80GiB")
    assert "bytes per millisecond" in problem(Annotated[float, bandwidth()], 1e300)


def test_half_a_surrogate_pair_is_refused_where_no_text_belongs():
    for kind in (int, bool, list[str], Cache):
        with pytest.raises(Mismatch):
            decode_value({"x": "\ud800"}, defstruct("X", [("x", kind)]))
    assert decode_value({"x": "\ud800"}, defstruct("X", [("x", str)])).x == "\ud800"


# Anything else
