"""The values of fields: texts, choices, numbers, flags and sizes, each checked at its place."""

import math

import pytest

from tests.spec.fields import KERNELS, TABLE, fields_of, parsed, problem, refusal

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
