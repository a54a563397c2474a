"""Fields are read with their checks; errors name file, line, place and what would be right."""

import json
import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.spec.document import document_of, parse_document
from fastplan.spec.fields import Fields
from fastplan.spec.nodes import SpecError
from tests.spec.fields import KERNELS, TABLE, fields_of, parsed, problem, refusal


def test_fields_are_read():
    table = parsed(
        """
name: users
rows: 40M
dim: 128
pooling: [1, 2.5]
kernels: fused
weighted: no
cache: {ratio: 0.2}
""",
        TABLE,
    )
    assert table.text("name") == "users"
    assert table.whole("rows") == 40_000_000
    assert table.whole("dim", least=1) == 128
    assert table.numbers("pooling") == (1.0, 2.5)
    assert table.texts("kernels", choices=KERNELS) == ("fused",)
    assert table.flag("weighted") is False
    assert table.nested("cache", ("ratio",)).number("ratio") == 0.2


# The mapping as a whole


@pytest.mark.parametrize(
    ("value", "found"), [(None, "null"), ([1], "a list"), ("x", "'x'"), (3, "3"), (True, "true")]
)
def test_what_is_no_mapping_is_refused(value, found):
    document = document_of(value, "m")
    error = refusal(Fields, document, document.root, "tables[0]", known=())
    assert str(error) == f"m: tables[0]: must be a mapping, not {found}"


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
    error = refusal(parsed, f"rows: 1\n{name}:\n  - 1\n", TABLE)
    assert str(error) == f"m.yaml:2: unknown field `{name}`; {advice}"


def test_an_unknown_field_of_json_has_its_line_too():
    text = '{"rows": 1,\n "cache": {\n  "ratio": 1,\n  "ration": 2}}'
    cache = parsed(text, TABLE, "m.json").nested
    error = refusal(cache, "cache", ("ratio",))
    assert str(error) == "m.json:4: cache: unknown field `ration`; did you mean `ratio`?"


def test_names_that_are_long_or_not_printable_are_quoted():
    error = refusal(fields_of, {"\x1b[31m\n<script>": 1}, known=("rows",))
    assert error.problem == "unknown field '\\x1b[31m\\n<script>'; known are rows"
    error = refusal(fields_of, {"x" * 10**6: 1}, known=("rows",))
    assert len(error.problem) < 120


def test_of_very_many_known_names_some_are_listed():
    error = refusal(fields_of, {"?": 1}, known=[f"field{i}" for i in range(1000)])
    assert error.problem.endswith("field38, field39 and 960 more")


def test_the_known_names_may_come_from_a_generator():
    fields = fields_of({"a": [{"b": 1}, {"b": 2}]}, known=(name for name in "a"))
    assert [each.whole("b") for each in fields.each("a", (name for name in "b"))] == [1, 2]
    assert fields_of({"a": ["x", "y"]}).texts("a", choices=iter("xy")) == ("x", "y")


# Missing fields


@pytest.mark.parametrize(
    "method",
    ["text", "texts", "whole", "wholes", "number", "numbers", "flag", "size", "sizes", "bandwidth"],
)
class TestMissing:
    def test_a_required_field_must_be_there(self, method):
        error = refusal(getattr(fields_of({}, place="tables[3]"), method), "rows")
        assert str(error) == "m: tables[3].rows: is missing"

    def test_a_default_takes_the_place_of_a_missing_field_as_it_is(self, method):
        default = object()
        assert getattr(fields_of({}), method)("rows", default) is default
        assert getattr(fields_of({}), method)("rows", None) is None

    def test_null_takes_the_default_but_is_no_required_field(self, method):
        fields = fields_of({"rows": None})
        default = object()
        assert getattr(fields, method)("rows", default) is default
        assert str(refusal(getattr(fields, method), "rows")) == "m: rows: must not be null"

    def test_mappings_are_no_value_of_a_field(self, method):
        error = refusal(getattr(fields_of({"rows": {"a": 1}}), method), "rows")
        assert error.place == "rows"
        assert error.problem.endswith(", not a mapping")


@pytest.mark.parametrize("method", ["text", "whole", "number", "flag", "size", "bandwidth"])
def test_lists_are_no_value_of_a_field_for_one(method):
    assert problem([1], method).endswith(", not a list")


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("a: 1\ntables:\n  - name: x\n  - name: y\n    dim: 1\n", "m.yaml", 4),
        ('{"a": 1, "tables": [\n {"name": "x"},\n {"name": "y",\n  "dim": 1}\n]}', "m.json", 3),
    ],
)
def test_a_missing_field_has_the_line_of_its_mapping(text, name, line):
    tables = parsed(text, ("a", "tables"), name).each("tables", TABLE)
    error = refusal(tables[1].whole, "rows")
    assert str(error) == f"{name}:{line}: tables[1].rows: is missing"


def test_a_null_field_is_there_but_has_no_node():
    fields = fields_of({"a": None, "b": 0}, known="abc")
    assert [name in fields for name in "abc"] == [True, True, False]
    assert fields.node("a") is None
    assert fields.node("b").value == 0
    assert fields.node("c") is None


# What is inside


def test_a_nested_mapping_is_none_when_left_out():
    fields = fields_of({"a": None}, known="ab")
    assert fields.nested("a", ()) is None
    assert fields.nested("b", ()) is None
    assert fields.each("a", ()) == fields.each("b", ()) == []
    assert fields.mapping("a") == fields.mapping("b") == []


def test_places_go_on_inside():
    fields = fields_of({"a": {"b c": [{"d": "x"}]}})
    inner = fields.nested("a", ("b c",)).each("b c", ("d",))[0]
    assert inner.place == 'a["b c"][0]'
    assert refusal(inner.whole, "d").place == 'a["b c"][0].d'
    assert inner.document is fields.document


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, "must be a list of mappings, not a mapping"),
        ("x", "must be a list of mappings, not 'x'"),
    ],
)
def test_each_needs_a_list(value, expected):
    assert refusal(fields_of({"x": value}).each, "x", ()).problem == expected


def test_each_of_a_list_must_be_a_mapping():
    error = refusal(fields_of({"x": [{}, 3]}).each, "x", ())
    assert str(error) == "m: x[1]: must be a mapping, not 3"


def test_a_mapping_with_free_keys_keeps_their_order():
    fields = fields_of({"x": {"b": 1, "a": 2}, "y": [1]})
    assert [(name, node.value) for name, node in fields.mapping("x")] == [("b", 1), ("a", 2)]
    assert refusal(fields.mapping, "y").problem == "must be a mapping, not a list"
    assert refusal(fields.nested, "y", ()).problem == "must be a mapping, not a list"


# Errors of callers


@pytest.mark.parametrize(
    ("text", "name"),
    [("\na:\n  b: 1\n  c: 2\n", "m.yaml"), ('\n{"a": {"b": 1,\n"c": 2}}', "m.json")],
)
def test_callers_raise_errors_of_their_own_at_the_right_line(text, name):
    first = 2
    inner = parsed(text, "a", name).nested("a", "bcd")
    last = first + (2 if name == "m.yaml" else 1)
    assert str(inner.error("c", "is odd")) == f"{name}:{last}: a.c: is odd"
    assert str(inner.error("d", "is missing")) == f"{name}:{first}: a.d: is missing"
    assert str(inner.error(None, "is odd")) == f"{name}:{first}: a: is odd"


# Anything else

METHODS = ("text", "texts", "whole", "wholes", "number", "numbers", "flag", "size", "sizes")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(VALUES, st.sampled_from((*METHODS, "bandwidth")))
@settings(max_examples=600, derandomize=True, deadline=None)
def test_any_value_is_read_or_gives_a_spec_error(value, method):
    try:
        fields = fields_of({"x": value})
        getattr(fields, method)("x")
    except SpecError as error:
        assert error.place.startswith("x")
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_any_damage_to_a_spec_is_found_or_harmless(name):
    rng = random.Random(11)
    tables = [{"name": f"t{i}", "rows": 100, "dim": 8, "pooling": [1.5]} for i in range(3)]
    dump = yaml.safe_dump if name == "m.yaml" else json.dumps
    original = dump({"tables": tables}, indent=1).encode()
    for _ in range(500):
        data = bytearray(original)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            document = parse_document(bytes(data), name)
            root = Fields(document, document.root, "", known=("tables",))
            for table in root.each("tables", TABLE):
                table.text("name")
                table.whole("rows")
                table.whole("dim", least=1)
                table.numbers("pooling")
        except SpecError as error:
            assert error.line is not None
            assert str(error).startswith(f"{name}:{error.line}: ")
