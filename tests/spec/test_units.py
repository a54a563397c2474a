"""Sizes, counts and bandwidths are read exactly, or refused with the value and an example."""

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.model.units import (
    LARGEST,
    fitted,
    format_size,
    is_broken,
    parse_bandwidth,
    parse_count,
    parse_size,
    read_whole,
    shown,
    yaml_scalar,
)

TAG = "tag:yaml.org,2002:"
SCALES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "GiB": 2**30}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (123, 123),
        (8e10, 80_000_000_000),
        ("7", 7),
        ("7B", 7),
        ("80GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("512 MiB", 512 * 2**20),
        (" 1.5GiB ", 3 * 2**29),
        ("1.5 kB", 1500),
        ("1.5KB", 1500),
        ("4KiB", 4096),
        ("2TiB", 2**41),
        ("1.25TB", 1_250_000_000_000),
        ("3PiB", 3 * 2**50),
        ("1PB", 10**15),
        (".5MiB", 2**19),
        ("1.MiB", 2**20),
        ("+1MiB", 2**20),
        ("1e9", 10**9),
        ("2.5e-1 GB", 250_000_000),
        ("0GiB", 0),
        ("9223372036854775807", LARGEST),
        ("0.1GB", 100_000_000),  # 0.1 is no float, but a whole number of bytes
        ("1.0000000000000000000GiB", 2**30),
    ],
)
def test_sizes_are_whole_bytes(text, size):
    found = parse_size(text)
    assert found == size
    assert type(found) is int


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "x",
        "GiB",
        ".GiB",
        "-1",
        "-1GiB",
        -1,
        "80G",
        "80Gi",
        "80gb",
        "80 Gb",
        "80GiB/s",
        "1.5",
        "1.5B",
        1.5,
        "0.3KiB",
        "1e-3",
        "1,5GB",
        "1_000",
        "0x10",
        "8 0GiB",
        "9223372036854775808",
        "9PiB9",
        "8388608PiB",
        "1e400",
        "1e9999",
        "1" * 41,
        "٣GiB",
        "80GiB\n80GiB",
        math.inf,
        math.nan,
        True,
        None,
        [],
        {},
    ],
)
def test_what_is_no_size_is_refused_with_the_value_and_an_example(text):
    with pytest.raises(ValueError, match="must be a size such as 80GiB") as caught:
        parse_size(text)
    assert str(caught.value).endswith(shown(text))


@given(
    st.integers(0, 10**12), st.integers(0, 6), st.integers(-9, 9), st.sampled_from(sorted(SCALES))
)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_a_size_is_its_decimal_value_or_refused(digits, decimals, exponent, unit):
    number = str(Decimal(digits).scaleb(-decimals))
    text = f"{number}e{exponent}{unit}" if "E" not in number else f"{number}{unit}"
    with localcontext() as context:
        context.prec = 100
        exact = Decimal(text.removesuffix(unit) if unit else text) * SCALES[unit]
        if exact == exact.to_integral_value() and exact <= LARGEST:
            assert parse_size(text) == int(exact)
        else:
            with pytest.raises(ValueError, match="must be a size"):
                parse_size(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (40, 40),
        (-3, -3),
        (4e7, 40_000_000),
        ("40M", 40_000_000),
        ("1.5M", 1_500_000),
        ("2B", 2_000_000_000),
        ("2G", 2_000_000_000),
        ("10k", 10_000),
        ("10 K", 10_000),
        ("1e6", 1_000_000),
        ("1.5e3", 1500),
        ("-1e3", -1000),
        ("-2.5k", -2500),
        ("08", 8),
        ("0.000001M", 1),
    ],
)
def test_counts_are_whole_numbers(text, count):
    found = parse_count(text)
    assert found == count
    assert type(found) is int


@pytest.mark.parametrize(
    "text", ["", "M", "1.5", "1.0005k", "40m", "40MB", "4T", "1:30", 0.5, math.inf, True, None, []]
)
def test_what_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match="must be a whole number such as 40000000 or 40M"):
        parse_count(text)


@pytest.mark.parametrize("number", [600, 12.5, 897, 51, 32, 25, 1555, 3352, 0.1, 12.3, 450.7])
def test_bandwidths_are_to_the_bit_what_python_computes(number):
    assert parse_bandwidth(f"{number}GiB/s") == number * 1024 * 1024 * 1024 / 1000
    assert parse_bandwidth(f"{number} MiB/s") == number * 1024 * 1024 / 1000
    assert parse_bandwidth(f"{number}GB/s") == number * 10**9 / 1000


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [
        ("100 MiB/s", 100 * 1024 * 1024 / 1000),
        ("900GB/s", 9e8),
        ("50Gbit/s", 50e9 / 8 / 1000),
        ("1Tbit/s", 1.25e8),
        ("8kbit/s", 1.0),
        ("1000 B/s", 1.0),
        ("1e3GB/s", 1e9),
        (644245094.4, 644245094.4),
        (600, 600.0),
        ("600", 600.0),
        ("1.5e2", 150.0),
    ],
)
def test_bandwidths_are_bytes_per_millisecond(text, bandwidth):
    found = parse_bandwidth(text)
    assert found == bandwidth
    assert type(found) is float


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GB/s",
        "900GB",
        "900Gb/s",
        "900Gbps",
        "900 GB / s",
        "-1GB/s",
        "0GB/s",
        0,
        -1.5,
        "nan",
        "inf",
        "1e999",
        "1e999GB/s",
        "1e308GB/s",
        10**400,
        math.inf,
        math.nan,
        False,
        None,
        [],
        {},
    ],
)
def test_what_is_no_bandwidth_is_refused(text):
    with pytest.raises(ValueError, match="must be a bandwidth such as 900GB/s"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (80 * 10**9, "74.5 GiB"),
        (80 * 2**30, "80 GiB"),
        (80 * 2**30 - 1, "80.0 GiB"),
        (2**40 - 1, "1.0 TiB"),
        (1023 * 2**30, "1023 GiB"),
        (2**41, "2 TiB"),
        (5000 * 2**50, "5000 PiB"),
        (-80 * 10**9, "-74.5 GiB"),
    ],
)
def test_a_size_is_written_for_people(size, text):
    assert format_size(size) == text


@given(st.integers(0, LARGEST))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_a_written_size_is_within_its_last_digit(size):
    text = format_size(size)
    number, unit = text.split()
    scale = {**SCALES, "MiB": 2**20, "TiB": 2**40, "PiB": 2**50}[unit]
    assert abs(float(number) * scale - size) <= (0.05 * scale + 1 if "." in number else 0)
    assert float(number) < 1024 or unit == "PiB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (1.5, "1.5"),
        ("x", "'x'"),
        ("\x1b[31m\n<b>", "'\\x1b[31m\\n<b>'"),
        ({"a": 1}, "a mapping"),
        ([1, 2], "a list"),
        ((1, 2), "a list"),
    ],
)
def test_values_are_quoted_on_one_line(value, text):
    assert shown(value) == text


def test_long_values_are_cut():
    assert shown("x" * 10**6) == "'" + "x" * 56 + "..."


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("x", "str", "x"),
        ("2020-01-01", "timestamp", "2020-01-01"),
        ("~", "null", None),
        ("Yes", "bool", True),
        ("off", "bool", False),
        ("40_000", "int", 40_000),
        ("-0x1F", "int", -31),
        ("0b101", "int", 5),
        ("00", "int", 0),
        ("1:30", "int", "1:30"),
        ("1:30.5", "float", "1:30.5"),
        ("1_0.5e+1", "float", 105.0),
        ("-.INF", "float", -math.inf),
        ("1" + "0" * 30, "int", 1e30),
        ("0x" + "f" * 30, "int", float(16**30 - 1)),
    ],
)
def test_yaml_scalars_have_plain_values(text, kind, value):
    found = yaml_scalar(text, TAG + kind)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_read_from_yaml():
    assert math.isnan(yaml_scalar(".NaN", TAG + "float"))


@pytest.mark.parametrize(
    ("text", "tag", "problem"),
    [
        ("x", TAG + "python/name:os.system", "has the tag"),
        ("x", "!mine", "has the tag '!mine' on 'x'"),
        ("x", "str", "has the tag 'str'"),
        ("aGk=", TAG + "binary", "has the tag"),
        ("maybe", TAG + "bool", "has the tag"),
        ("x", TAG + "int", "must be a number"),
        ("0b_", TAG + "int", "must be a number"),
        ("x", TAG + "float", "must be a number"),
        ("010", TAG + "int", "octal"),
        ("-0_7", TAG + "int", "octal"),
        ("1.0e+999", TAG + "float", "smaller"),
        ("9" * 5000, TAG + "int", "smaller"),
        ("0x" + "f" * 5000, TAG + "int", "smaller"),
        ("\ud800", TAG + "str", "surrogates"),
    ],
)
def test_yaml_scalars_that_are_no_plain_data_are_refused(text, tag, problem):
    with pytest.raises(ValueError, match=problem):
        yaml_scalar(text, tag)


def test_wholes_beyond_64_bits_become_floats():
    assert type(fitted(2**64 - 1)) is int
    assert type(fitted(-(2**63))) is int
    assert fitted(2**64) == 2.0**64
    assert fitted(10**400) == math.inf
    assert type(read_whole("9" * 20)) is int
    assert read_whole("9" * 21) == 1e21
    assert read_whole("9" * 10**6) == math.inf


def test_half_a_surrogate_pair_is_no_text():
    assert is_broken("a\ud800")
    assert not is_broken("a")
    assert not is_broken("\U0001f600")
