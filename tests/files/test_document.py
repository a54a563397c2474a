"""A file becomes plain data with lines, or a SpecError that names file, line and place."""

import errno
import json
import math
import os
import pickle
import random
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.files import document as module
from fastplan.files.document import (
    Document,
    SpecError,
    below,
    document_of,
    parse_document,
    read_document,
)
from tests.files.documents import MODEL, lines_of, refusal, value_of

JSON_MODEL = b"""\

{
  "defaults": {"dim": 128},
  "tables": [
    {
      "name": "users", "rows": 40,
      "a b": [1,
        {"x": null}]
    },
    {"name": "items", "deep":
      [[1, 2], []]}
  ]
}
"""


# Errors


def test_an_error_says_file_line_place_and_problem():
    error = SpecError("model.yaml", 12, "tables[3].rows", "must be a number, not 'x'")
    assert str(error) == "model.yaml:12: tables[3].rows: must be a number, not 'x'"
    assert (error.file, error.line) == ("model.yaml", 12)
    assert (error.place, error.problem) == ("tables[3].rows", "must be a number, not 'x'")


def test_an_error_leaves_out_what_is_not_known():
    assert str(SpecError("m", None, "a", "is missing")) == "m: a: is missing"
    assert str(SpecError("m", 3, "", "is empty")) == "m:3: is empty"


def test_an_error_can_be_sent_to_another_process():
    error = pickle.loads(pickle.dumps(SpecError("m", 3, "a", "is missing")))
    assert str(error) == "m:3: a: is missing"


@pytest.mark.parametrize(
    ("steps", "place"),
    [
        (["tables", 3, "rows"], "tables[3].rows"),
        ([0, 1], "[0][1]"),
        (["a b", "c"], '["a b"].c'),
        (["a", "b.c"], 'a["b.c"]'),
        (["hbm-bw"], "hbm-bw"),
        ([""], '[""]'),
        (["\x1b[31m"], '["\\u001b[31m"]'),
    ],
)
def test_places_are_unmistakable(steps, place):
    found = ""
    for step in steps:
        found = below(found, step)
    assert found == place


# JSON


def test_json_values_are_plain_data():
    assert value_of(JSON_MODEL, "m.json") == json.loads(JSON_MODEL)


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        ((), 2),
        (("defaults",), 3),
        (("defaults", "dim"), 3),
        (("tables",), 4),
        (("tables", 0), 5),
        (("tables", 0, "rows"), 6),
        (("tables", 0, "a b"), 7),
        (("tables", 0, "a b", 0), 7),
        (("tables", 0, "a b", 1), 8),
        (("tables", 0, "a b", 1, "x"), 8),
        (("tables", 1), 10),
        (("tables", 1, "deep"), 10),
        (("tables", 1, "deep", 0, 1), 11),
        (("tables", 1, "deep", 1), 11),
        (("tables", 1, "missing"), 10),
        (("tables", 1, "name", "missing"), 10),
        (("missing",), 2),
    ],
)
def test_lines_of_json_are_found_by_place(steps, line):
    document = parse_document(JSON_MODEL, "m.json")
    assert document.line(steps) == line


# Pairs of escapes are one character in JSON only.
TEXTS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(JSON_VALUES)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_every_place_of_any_json_has_the_line_that_yaml_finds(value):
    text = json.dumps(value, indent=1, ensure_ascii=True).encode()
    document = parse_document(text, "m.json")
    assert document.root == value
    assert lines_of(document) == lines_of(parse_document(text, "m", format="yaml"))


@pytest.mark.parametrize(
    ("text", "line", "place", "problem"),
    [
        (b'{"a": 1,\n "b": }', 2, "", "is not JSON"),
        (b'{"a": 1,\n "b": 2', 2, "", "is not JSON"),
        (b"", 1, "", "is not JSON"),
        (b"\n\nx", 3, "", "is not JSON"),
        (b"1 2", 1, "", "is not JSON"),
        (b'{"a": 1}\0', 1, "", "is not JSON"),
        (b'"\x01"', 1, "", "is not JSON"),
        (b"{'a': 1}", 1, "", "is not JSON"),
        (b'{"a": 1,\n "b": \xff}', 2, "", "is not UTF-8 text"),
        (b'{"a": 1,\n "a": 2}', 2, "a", "occurs twice, in lines 1 and 2"),
        (b'[{"b": {"a": 1,\n\n "\\u0061": 2}}]', 3, "[0].b.a", "twice, in lines 1 and 3"),
        (b'{"a": {"x": 1}, "a": {"x": 1}}', 1, "a", "occurs twice"),
        (b'{"a": [1,\n NaN]}', 2, "a[1]", "must be a finite number"),
        (b'[-Infinity, "x"]', 1, "[0]", "must be a finite number"),
        (b'{"a": 1e999}', 1, "a", "must be a finite number"),
        (b"NaN", 1, "", "must be a finite number"),
        (b'{"a": ' + b"9" * 5000 + b"}", 1, "a", "must be a finite number"),
        (b'{"a":\n "\\ud800"}', 1, "a", "lone surrogates"),
        (b'[{"\\ud800": 1}]', 1, "[0]", "must have strings as keys"),
        (b"[" * 150 + b"]" * 150, None, "", "levels deep"),
        (b"[" * 100_000 + b"]" * 100_000, None, "", "levels deep"),
        (b'{"a":' * 100_000, None, "", "levels deep"),
    ],
)
def test_bad_json_is_named_with_its_line_and_place(text, line, place, problem):
    error = refusal(text, "m.json")
    assert problem in error.problem
    assert (error.file, error.line, error.place) == ("m.json", line, place)


def test_json_of_too_many_values_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_VALUES", 1000)
    assert "values" in refusal(json.dumps([[0] * 10] * 200).encode(), "m.json").problem


def test_wholes_keep_64_bits_and_longer_ones_become_floats():
    text = b"[-9223372036854775808, 18446744073709551615, " + b"1" * 30 + b"]"
    found = value_of(text, "m.json")
    assert found == [-(2**63), 2**64 - 1, float("1" * 30)]
    assert [type(item) for item in found] == [int, int, float]


# Formats and files


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", b"[1]"),
        ("M.JSON", b"[1]"),
        ("m", b"  \n[1]"),
        ("m.txt", b"[1]"),
        ("m.yaml", b"- 1"),
        ("m.YML", b"- 1"),
        ("m", b"- 1"),
        ("m.json.txt", b"- 1"),
    ],
)
def test_the_format_is_told_by_the_suffix_or_the_beginning(name, text):
    assert value_of(text, name) == [1]


def test_a_given_format_counts_more_than_the_suffix():
    assert parse_document(b"- 1", "m.json", format="yaml").root == [1]
    assert "is not JSON" in refusal(b"- 1", "m.yaml", format="json").problem


def test_a_file_is_read(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_bytes(MODEL)
    document = read_document(file)
    assert document.root == parse_document(MODEL, str(file)).root
    assert document.file == str(file)
    assert read_document(str(file)).root == document.root


def test_a_file_that_is_not_there_gives_the_reason(tmp_path):
    with pytest.raises(SpecError, match="can't be read: No such file or directory") as caught:
        read_document(tmp_path / "m.yaml")
    assert (caught.value.line, caught.value.place) == (None, "")


def test_a_directory_gives_the_reason(tmp_path):
    with pytest.raises(SpecError, match="can't be read: Is a directory"):
        read_document(tmp_path)


def test_a_file_that_may_not_be_read_gives_the_reason(monkeypatch):
    def refuse(path, flags):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(module.os, "open", refuse)  # root may read everything
    with pytest.raises(SpecError, match="can't be read: Permission denied"):
        read_document("m.yaml")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    file = tmp_path / "m.yaml"
    os.mkfifo(file)
    with pytest.raises(SpecError, match="it is a pipe or a device"):
        read_document(file)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs /dev/zero")
def test_a_device_is_refused():
    with pytest.raises(SpecError, match="it is a pipe or a device"):
        read_document("/dev/zero")


@pytest.mark.parametrize("path", ["a\0b.yaml", "\ud800.yaml"])
def test_a_path_that_no_file_can_have_is_refused(path):
    with pytest.raises(SpecError, match="can't be read"):
        read_document(path)


def test_a_file_that_is_too_large_is_not_read_to_its_end(tmp_path, monkeypatch):
    file = tmp_path / "m.yaml"
    file.write_bytes(b"x" * 100)
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    assert read_document(file).root == "x" * 100
    with open(file, "ab") as stream:
        stream.truncate(1 << 40)  # sparse: reading it all would take all memory
    with pytest.raises(SpecError, match="is larger than"):
        read_document(file)


# Plain data


def test_plain_data_becomes_a_document_without_lines():
    value = {"a": [1, 2.5, None, True, "x"], "b": {"c": ()}}
    document = document_of(value, "<caller>")
    assert isinstance(document, Document)
    assert document.file == "<caller>"
    assert document.root == {"a": [1, 2.5, None, True, "x"], "b": {"c": []}}
    assert document.line(()) is None


def test_plain_data_may_be_of_kinds_that_are_dicts_texts_and_numbers():
    class Name(str):
        pass

    value = OrderedDict(a=np.int64(3), b=np.float64(0.5), c=Name("x"), d=math.inf, e=10**30)
    found = document_of(value, "m").root
    assert found == {"a": 3, "b": 0.5, "c": "x", "d": math.inf, "e": 1e30}
    assert [type(item) for item in found.values()] == [int, float, str, float, float]


@pytest.mark.parametrize(
    ("value", "place", "problem"),
    [
        ({"a": [1, {2}]}, "a[1]", "must be plain data, not of type set"),
        ({"a": object}, "a", "must be plain data, not of type type"),
        ([b"x"], "[0]", "must be plain data, not of type bytes"),
        ({"a": {1: 2}}, "a", "must have strings as keys, not 1"),
        ({"a": "\ud800"}, "a", "lone surrogates"),
        ([np.zeros(2)], "[0]", "must be plain data, not of type ndarray"),
    ],
)
def test_what_is_no_plain_data_is_refused(value, place, problem):
    with pytest.raises(SpecError) as caught:
        document_of(value, "m")
    assert problem in caught.value.problem
    assert (caught.value.line, caught.value.place) == (None, place)


def test_plain_data_that_holds_itself_is_refused():
    one = []
    one.append(one)
    with pytest.raises(SpecError, match="levels deep"):
        document_of(one, "m")
    many = {}
    many.update({str(i): many for i in range(1000)})
    with pytest.raises(SpecError, match=r"levels deep|values"):
        document_of(many, "m")


# Anything else


def survives(data, name):
    try:
        assert isinstance(parse_document(data, name), Document)
    except SpecError as error:
        assert str(error).startswith(name)


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_damaged_text_gives_a_document_or_a_spec_error(name):
    rng = random.Random(7)
    original = MODEL if name == "m.yaml" else JSON_MODEL
    pieces = [b"&a ", b"*a", b"<<: ", b"!!", b"? ", b"- ", b"{", b"]", b'"', b"\\u", b"\t", b"\n"]
    pieces += [b"---\n", b"|", b">", b"%", b"\xc3", b"\x85", b"\xe2\x80\xa8", b"NaN", b"1e999"]
    for _ in range(600):
        data = bytearray(original)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            if rng.random() < 0.5:
                data[at : at + rng.randint(0, 5)] = rng.choice(pieces)
            else:
                data[at] = rng.randrange(256)
        survives(bytes(data), name)


@given(st.binary(max_size=60), st.sampled_from(["m.yaml", "m.json", "m"]))
@settings(max_examples=400, derandomize=True, deadline=None)
def test_any_bytes_give_a_document_or_a_spec_error(data, name):
    survives(data, name)


@given(
    st.text(st.sampled_from("ab0.:-,?&*!|>'\"%@#{}[]<=~\\\t\n \r\x85\u2028_eEx+"), max_size=40),
    st.sampled_from(["m.yaml", "m.json", "m"]),
)
@settings(max_examples=800, derandomize=True, deadline=None)
def test_any_punctuation_gives_a_document_or_a_spec_error(text, name):
    survives(text.encode(), name)
