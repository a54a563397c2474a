"""A bundle comes back as it was, or not at all and with a reason."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.bundle.bundle import parse_bundle
from fastplan.bundle.format import (
    FORMAT,
    MAX_HEADER,
    MAX_PLANS,
    BundleError,
    Content,
    content_bytes,
    is_kernel_path,
)
from fastplan.files.storage import checksum, encode_start
from tests.bundle.samples import FACTS, KERNEL, NAMES, data, sealed

MAGIC = FORMAT.magic
PLAN = {"kind": "plan", "key": "0" * 16, "name": "a", "size": 0, "checksum": checksum(b"")}
ARTIFACTS = {"kind": "artifacts", "slots": [0], "names": {}, "size": 0, "checksum": checksum(b"")}
LIBRARY = {"kind": "kernel", "slots": [0], "path": KERNEL, "size": 0, "checksum": checksum(b"")}


def header(*parts, **changes):
    fields = {"created": "now", "model": None, "facts": {}, "parts": list(parts), **changes}
    return {name: value for name, value in fields.items() if value is not ...}


def reason(damaged):
    with pytest.raises(BundleError) as caught:
        parse_bundle(damaged)
    return caught.value.reason


def test_what_was_written_is_read():
    found = parse_bundle(data()).header
    assert (found.model, found.facts) == ("ranker", FACTS)
    assert len(found.plans) == 2
    (artifacts,) = found.artifacts
    assert (artifacts.slots, artifacts.names) == ((0,), NAMES)
    (kernel,) = found.kernels
    assert (kernel.path, kernel.slots) == (KERNEL, (0,))
    assert found.size == len(data())


def test_an_empty_bundle_is_one():
    found = parse_bundle(content_bytes(Content(model=None, facts={}))).header
    assert (found.model, found.plans, found.artifacts, found.kernels) == (None, (), (), ())


def test_the_format_is_as_it_was_first_written():
    fields = {"created": "t", "facts": {"torch": "2"}, "model": "m"}
    start = encode_start(FORMAT, fields, [])
    assert start.hex() == (
        "89667073746172740d0a1a0a01003c0000007b2263726561746564223a227422"
        "2c226661637473223a7b22746f726368223a2232227d2c226d6f64656c223a22"
        "6d222c227061727473223a5b5d7d46de1bcea3e3089d0c150b55ae4438e2"
    )
    assert parse_bundle(start).header.model == "m"


@given(
    st.none() | st.text(max_size=20),
    st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4),
)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_any_name_and_fact_comes_back(model, facts):
    found = parse_bundle(content_bytes(Content(model=model, facts=facts))).header
    assert (found.model, found.facts) == (model, facts)


def test_every_flipped_bit_of_the_header_is_found():
    good = data()
    end = parse_bundle(good).header.plans[0].span.at
    for at in range(end):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            assert reason(bytes(bad))


def test_every_flipped_byte_behind_the_header_is_found_when_it_is_read():
    good = data()
    begin = parse_bundle(good).header.plans[0].span.at
    for at in range(begin, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        assert len(parse_bundle(bytes(bad)).find_damage()) == 1


def test_every_truncation_is_found():
    good = data()
    for end in range(len(good)):
        assert "truncated" in reason(good[:end]) or end == 0


def test_extra_bytes_are_found():
    assert "extra bytes" in reason(data() + b"x")


@pytest.mark.parametrize(
    "other",
    [b"", b"{}", b"\x89PNG\r\n\x1a\n", MAGIC.replace(b"\r\n", b"\n"), b"\x89fastplan\r\n\x1a\n"],
)
def test_other_files_are_no_bundles(other):
    assert reason(other) == "not a start bundle"


def test_a_newer_schema_is_told_before_anything_else():
    assert reason(sealed(b"?", schema=2)) == "newer schema 2, this version reads 1"
    assert reason(sealed(b"?", schema=0)) == "unknown schema 0, this version reads 1"


def test_a_header_over_the_limit_is_not_read():
    claim = MAGIC + b"\x01\x00" + (MAX_HEADER + 1).to_bytes(4, "little")
    assert "the limit is" in reason(claim)


def test_a_header_over_the_limit_is_not_written():
    with pytest.raises(ValueError, match="`header` must be at most"):
        content_bytes(Content(model="m" * MAX_HEADER, facts={}))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"created": "now"}', "not canonical"),
        (b'{"a":1,"a":1}', "not canonical"),
        (b'{"a":NaN}', "not finite"),
        (b'{"parts":[],"size":1.5}', "missing required field `created`"),
        (b'{"a":' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        ("{'ä':1}".encode(), "not valid JSON"),
        (header(created=1), "created: Expected `str`, got `int`"),
        (header(created=...), "missing required field `created`"),
        (header(model=3), "model: Expected `str | null`, got `int`"),
        (header(facts=[]), "facts: Expected `object`, got `array`"),
        (header(facts="\ud800"), "surrogates not allowed"),
        (header(facts={"torch": 2}), "facts[...]: Expected `str`, got `int`"),
        (header(parts={}), "parts must be a list"),
        (header("plan"), "parts[0] must be an object"),
        (header({**PLAN, "kind": None}), "parts[0].kind must be a string"),
        (header({**PLAN, "size": -1}), "parts[0].size must be"),
        (header({**PLAN, "size": True}), "parts[0].size must be"),
        (header({**PLAN, "size": 1 << 40}), "parts[0].size must be"),
        (header({**PLAN, "checksum": "0" * 31}), "parts[0].checksum must be"),
        (header({**PLAN, "key": "../.."}), "parts[0].key: Expected `str` matching"),
        (header({**PLAN, "name": "../a"}), "parts[0].name: Expected `str` matching"),
        (header({**PLAN, "name": "a\n"}), "parts[0].name: Expected `str` matching"),
        (header(PLAN, PLAN), "duplicate plan"),
        (header({**ARTIFACTS, "slots": 0}), "parts[0].slots: Expected `array`"),
        (header({**ARTIFACTS, "slots": [-1]}), "parts[0].slots[0]: Expected `int` >= 0"),
        (header({**ARTIFACTS, "slots": [1024]}), "parts[0].slots[0]: Expected `int` <= 1023"),
        (header({**ARTIFACTS, "slots": [True]}), "parts[0].slots[0]: Expected `int`, got `bool`"),
        (header({**ARTIFACTS, "names": []}), "parts[0].names: Expected `object`"),
        (header({**ARTIFACTS, "names": {"a": "b"}}), "parts[0].names[...]: Expected `array`"),
        (header({**ARTIFACTS, "names": {"a": [1]}}), "parts[0].names[...][0]: Expected `str`"),
        (header({**LIBRARY, "path": None}), "parts[0].path: Expected `str`"),
        (header(LIBRARY, LIBRARY), "duplicate kernel"),
    ],
)
def test_a_malformed_header_is_told(told, why):
    assert why in reason(sealed(told))


def test_too_many_plans_are_refused():
    many = [{**PLAN, "name": f"p{i}"} for i in range(MAX_PLANS + 1)]
    assert "the limit is" in reason(sealed(header(*many)))
    assert len(parse_bundle(sealed(header(*many[:-1]))).header.plans) == MAX_PLANS


@pytest.mark.parametrize("path", ["a.so", "ab/x.main.so", "triton/0/AB-1/launcher.cpython-311.so"])
def test_kernel_paths_lead_down(path):
    assert is_kernel_path(path)
    assert parse_bundle(sealed(header({**LIBRARY, "path": path}))).header.kernels[0].path == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/a.so", "../a.so", "a/../b.so", "a/./b.so", "a//b.so", ".hidden/a.so", "a.py", "a/"),
        *(
            "a\\b.so",
            "a\n.so",
            "a\0.so",
            "c:/a.so",
            "a/" * 9 + "b.so",
            "x" * 300 + ".so",
            "-a/b.so",
        ),
    ],
)
def test_kernel_paths_that_lead_elsewhere_are_refused(path):
    assert not is_kernel_path(path)
    assert "parts[0].path: Expected `str` matching" in reason(
        sealed(header({**LIBRARY, "path": path}))
    )


def test_what_later_versions_add_is_passed_over():
    later = {"kind": "graph", "size": 5, "checksum": checksum(b"graph"), "more": [1]}
    known = {**LIBRARY, "size": 3, "checksum": checksum(b"lib"), "more": None}
    made = sealed(header(later, known, more={}), b"graphlib")
    assert parse_bundle(made).find_damage() == []
    (kernel,) = parse_bundle(made).header.kernels
    assert made[kernel.span.at :] == b"lib"


def test_the_header_is_plain_json():
    text = data()[len(MAGIC) + 6 :]
    told, _ = json.JSONDecoder().raw_decode(text.decode("latin-1"))
    assert [part["kind"] for part in told["parts"]] == ["plan", "plan", "artifacts", "kernel"]
