"""Canonical JSON by the core equals that of Python's encoder, which keys were made with."""

import json
import math
import random
import struct

import numpy as np
import pytest

from fastplan.cache.fingerprint import _columns, canonical_request
from fastplan.engine._native import canonical_json, columns_of
from fastplan.files.storage import canonical_json as by_python
from tests.plans.samples import random_request
from tests.problems import DEFAULT_SEARCH

TEXTS = ["", "sparse.t1", 'a "quote" \\ /', "\0\b\t\n\f\r\x1f\x7f\x80", "é€\ud800\udfff𝄞\U0010ffff"]
NUMBERS = [0.0, -0.0, 1e15, 1e16, 1e17, -1e15, 0.1, 1e-4, 1e-5, 5e-324, 2.0**-44, 2.0**63, 1e22]


def random_double(draw):
    (value,) = struct.unpack("d", draw.randbytes(8))
    return value if math.isfinite(value) else 0.5


@pytest.mark.parametrize("seed", range(20))
def test_floats_are_written_as_by_python(seed):
    draw = random.Random(seed)
    values = [random_double(draw) for _ in range(500)]
    values += [float(draw.randrange(-(10**18), 10**18)) for _ in range(100)]
    values += [round(draw.uniform(-100, 100), draw.randrange(6)) for _ in range(100)]
    assert canonical_json(values, spell=False) == by_python(values)


@pytest.mark.parametrize(
    "value",
    [
        *TEXTS,
        *NUMBERS,
        *(-number for number in NUMBERS),
        *(2.0**power for power in range(-1074, 1024, 7)),
        *(0, -1, 2**63 - 1, -(2**63), True, False, None),
        [],
        {},
        [[], {}, ()],
        {text: [text] for text in TEXTS},
        {"b": 1, "a": {"d": (1, 2.5), "c": None}, "B": [True, "x"]},
    ],
)
def test_plain_values_are_written_as_by_python(value):
    assert canonical_json(value, spell=False) == by_python(value)


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, np.float64(1.5), {1: 2}, {None: 2}, {1, 2}, object(), b"x", math.inf],
)
def test_what_is_not_plain_is_left_to_python(value):
    assert canonical_json(["x", value], spell=False) is None


def test_a_document_without_end_is_left_to_python():
    endless = []
    endless.append(endless)
    assert canonical_json(endless, spell=False) is None


def test_numbers_that_json_lacks_are_spelled_on_request():
    values = [math.nan, math.inf, -math.inf]
    assert canonical_json(values, spell=True) == b'["nan","inf","-inf"]'
    assert canonical_json(values, spell=False) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_request_is_written_in_the_form_that_python_writes(seed):
    request = random_request(seed)[0]
    written = canonical_request(request, DEFAULT_SEARCH, ranks=8, context={"torchrec": "x"})
    assert by_python(json.loads(written)) == written


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_of_the_context_that_json_lacks_is_text(number):
    request = random_request(0)[0]
    spelled = {"share": repr(number)}
    expected = canonical_request(request, DEFAULT_SEARCH, ranks=8, context=spelled)
    context = {"share": number}
    assert canonical_request(request, DEFAULT_SEARCH, ranks=8, context=context) == expected


@pytest.mark.parametrize(("number", "plain"), [(np.int64(3), 3), (np.float32(0.5), 0.5)])
def test_any_number_of_numpy_has_a_key(number, plain):
    request = random_request(0)[0]
    keys = {
        canonical_request(request, DEFAULT_SEARCH, ranks=8, context={"share": share})
        for share in (number, plain)
    }
    assert len(keys) == 1


def test_numbers_of_numpy_have_the_key_of_pythons():
    request = random_request(0)[0]
    expected = canonical_request(request, DEFAULT_SEARCH, ranks=8, context={"share": 0.25})
    context = {"share": np.float64(0.25)}
    assert canonical_request(request, DEFAULT_SEARCH, ranks=8, context=context) == expected


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([4, 4.0], {"all": 4.0}),
        ([4, 5.5], [4.0, 5.5]),
        ([0.0, -0.0], {"all": 0.0}),
        ([float("nan"), float("nan")], {"all": "nan"}),
        ([math.inf, math.inf], {"all": "inf"}),
        ([math.nan, 1], ["nan", 1.0]),
    ],
)
def test_a_column_of_floats_is_written_once_if_all_are_equal(values, column):
    first = random_request(0)[0].tables[0]
    tables = tuple(first._replace(perf_inputs=value) for value in values)
    assert str(_columns(tables, [0] * 100)["perf_inputs"]) == str(column)


@pytest.mark.parametrize("rows", [((), (1,)), ((), (), (1, 2)), ((1,), ()), ((1,), [1]), ()])
def test_rows_that_are_no_columns_are_type_errors(rows):
    with pytest.raises(TypeError, match="`rows` must"):
        columns_of(rows)
