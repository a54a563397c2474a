"""Fields are read with their checks; errors name file, line, place and what would be right."""

import json
import math
import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.spec.document import SpecError, document_of, parse_document
from fastplan.spec.fields import Fields

TABLE = ("name", "rows", "dim", "pooling", "kernels", "weighted", "cache")
KERNELS = ("dense", "fused", "fused_uvm", "fused_uvm_caching")


def fields_of(value, known=None, place=""):
    document = document_of(value, "m")
    return Fields(document, document.root, place, known=value if known is None else known)


def parsed(text, known, name="m.yaml"):
    document = parse_document(text.encode(), name)
    return Fields(document, document.root, "", known=known)


def refusal(read, *arguments, **options):
    with pytest.raises(SpecError) as caught:
        read(*arguments, **options)
    return caught.value


def problem(value, method, **options):
    return refusal(getattr(fields_of({"x": value}), method), "x", **options).problem


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


# Texts


def test_texts_are_taken_as_they_are():
    for text in ["", " x ", "40M", "\x1b<b>", "ключ"]:
        assert fields_of({"x": text}).text("x") == text
        assert fields_of({"x": [text, text]}).texts("x") == (text, text)


@pytest.mark.parametrize(("value", "found"), [(False, "false"), (7, "7"), (1.5, "1.5")])
def test_a_number_or_flag_is_no_text_unless_in_quotes(value, found):
    assert problem(value, "text") == f"must be a text, not {found}; put it in quotes"


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
    found = problem(value, "text", choices=KERNELS)
    assert found.startswith("must be one of dense, fused, fused_uvm, fused_uvm_caching, not ")
    assert found.endswith(end)


def test_choices_may_be_the_keys_of_a_mapping():
    assert fields_of({"x": "a"}).text("x", choices={"a": 1}) == "a"


def test_a_default_need_not_be_a_choice():
    assert fields_of({}).text("x", None, choices=KERNELS) is None


def test_each_of_a_list_is_checked_at_its_place():
    text = "kernels:\n  - fused\n  - dence\n"
    error = refusal(parsed(text, TABLE).texts, "kernels", choices=KERNELS)
    assert (error.line, error.place) == (3, "kernels[1]")
    error = refusal(
        parsed('{"kernels": ["fused",\n\n "dence"]}', TABLE, "m.json").texts,
        "kernels",
        choices=KERNELS,
    )
    assert (error.line, error.place) == (3, "kernels[1]")
    assert refusal(fields_of({"x": ["a", None]}).texts, "x").place == "x[1]"
    assert refusal(fields_of({"x": [["a"]]}).texts, "x").problem == "must be a text, not a list"


def test_a_single_one_counts_as_a_list_of_one():
    fields = fields_of({"t": "a", "w": "40M", "n": 2, "s": "1KiB", "none": []})
    assert fields.texts("t") == ("a",)
    assert fields.wholes("w") == (40_000_000,)
    assert fields.numbers("n") == (2.0,)
    assert fields.sizes("s") == (1024,)
    assert fields.texts("none") == fields.wholes("none") == fields.numbers("none") == ()


# Numbers


@pytest.mark.parametrize(
    ("value", "whole"),
    [(7, 7), (4e7, 40_000_000), ("40M", 40_000_000), ("1e6", 10**6), ("7", 7), (2**63 - 1,) * 2],
)
def test_whole_numbers_may_be_written_short(value, whole):
    found = fields_of({"x": value}).whole("x")
    assert found == whole
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ("x", {"least": 1}, "must be a whole number of at least 1, not 'x'"),
        (0, {"least": 1}, "must be a whole number of at least 1, not 0"),
        (-1, {}, "must be a whole number of at least 0, not -1"),
        (1.5, {}, "must be a whole number of at least 0, not 1.5"),
        (True, {}, "must be a whole number of at least 0, not true"),
        (9, {"most": 8}, "must be a whole number from 0 to 8, not 9"),
        ("9k", {"least": 2, "most": 8}, "must be a whole number from 2 to 8, not '9k'"),
        (2**63, {}, f"must be a whole number from 0 to {2**63 - 1}, not {2**63}"),
        ("1e999", {}, f"must be a whole number from 0 to {2**63 - 1}, not '1e999'"),
        (math.inf, {}, "must be a whole number of at least 0, not inf"),
        (math.nan, {}, "must be a whole number of at least 0, not nan"),
    ],
)
def test_a_whole_number_must_be_whole_and_within_bounds(value, options, expected):
    assert problem(value, "whole", **options) == expected


def test_a_whole_number_may_be_negative_where_that_is_allowed():
    assert fields_of({"x": -5}).whole("x", least=-10) == -5
    assert fields_of({"x": "-1k"}).whole("x", least=-1000) == -1000


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7.0), (0.5, 0.5), ("1e6", 1e6), ("1e-3", 1e-3), ("-2.5", -2.5), (".5", 0.5), ("7", 7.0)],
)
def test_numbers_are_floats(value, number):
    found = fields_of({"x": value}).number("x")
    assert found == number
    assert type(found) is float


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        ("x", {}, "must be a number, not 'x'"),
        ("", {}, "must be a number, not ''"),
        ("40M", {}, "must be a number, not '40M'"),
        ("1_0", {}, "must be a number, not '1_0'"),
        ("0x10", {}, "must be a number, not '0x10'"),
        (" 1", {}, "must be a number, not ' 1'"),
        (True, {}, "must be a number, not true"),
        (math.inf, {}, "must be a number, not inf"),
        (math.nan, {}, "must be a number, not nan"),
        ("nan", {}, "must be a number, not 'nan'"),
        ("1e999", {}, "must be a number, not '1e999'"),
        (-1, {"least": 0}, "must be at least 0, not -1"),
        (1.5, {"least": 0, "most": 1}, "must be at most 1, not 1.5"),
        ("-inf", {"least": 0, "allow_nonfinite": True}, "must be at least 0, not '-inf'"),
    ],
)
def test_a_number_must_be_finite_and_within_bounds(value, options, expected):
    assert problem(value, "number", **options) == expected
    assert problem([value], "numbers", **options) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [("x: [.inf, -.inf, .nan]", "m.yaml"), ('{"x": ["inf", "-inf", "nan"]}', "m.json")],
)
def test_numbers_that_are_not_finite_are_read_where_allowed(text, name):
    first, second, third = parsed(text, "x", name).numbers("x", allow_nonfinite=True)
    assert (first, second) == (math.inf, -math.inf)
    assert math.isnan(third)
    assert fields_of({"x": "inf"}).number("x", allow_nonfinite=True) == math.inf


@pytest.mark.parametrize("value", ["true", 0, 1, "no"])
def test_a_flag_is_true_or_false(value):
    assert problem(value, "flag").startswith("must be true or false, not ")


def test_sizes_and_bandwidths_have_units():
    fields = fields_of({"hbm": "80GiB", "bw": "600GiB/s", "each": ["1KiB", 7]})
    assert fields.size("hbm") == 80 * 2**30
    assert fields.bandwidth("bw") == 600 * 1024 * 1024 * 1024 / 1000
    assert fields.sizes("each") == (1024, 7)
    assert "such as 80GiB" in refusal(fields.size, "bw").problem
    assert "such as 900GB/s" in refusal(fields.bandwidth, "hbm").problem
    assert refusal(fields_of({"x": [1, "y"]}).sizes, "x").place == "x[1]"


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
