"""An entry comes back as it was, or not at all and with a reason."""

import json
import random
import struct
import tracemalloc
import zlib
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.cache.entry import (
    FORMAT,
    MAX_CERTIFICATE,
    MAX_HEADER,
    MAX_SECTION,
    BadEntry,
    Entry,
    decode,
    encode,
    pack_request,
    request_bytes,
)
from tests.cache.samples import data, entry, key, parts, sealed

MAGIC = FORMAT.magic

INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ENTRIES = st.builds(
    Entry,
    key=st.text("0123456789abcdef", min_size=16, max_size=128),
    capacities=st.lists(st.tuples(st.integers(1, 2**40), INT64, INT64, INT64), max_size=4).map(
        tuple
    ),
    rating=FINITE,
    payload=st.binary(max_size=200),
    request=st.binary(max_size=100),
    provenance=st.dictionaries(TEXT, TEXT | INT64 | FINITE, max_size=4),
    certificate=st.binary(max_size=100),
)


def reason(damaged):
    with pytest.raises(BadEntry) as caught:
        decode(damaged)
    return caught.value.reason


def header(**changes):
    fields = {
        "capacities": [[8, 1, 2, 3]],
        "key": key(1),
        "parts": parts(),
        "provenance": {"host": "a"},
        "rating": (1.5).hex(),
        **changes,
    }
    return json.dumps(
        {name: value for name, value in fields.items() if value is not ...},
        sort_keys=True,
        separators=(",", ":"),
    ).encode()


@given(ENTRIES)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_entry_comes_back_to_the_bit(made):
    again = decode(encode(made))
    assert again == made
    assert again.rating.hex() == made.rating.hex()
    assert encode(again) == encode(made)


def test_the_bytes_do_not_depend_on_the_order_of_provenance():
    one = entry(provenance={"a": 1, "b": 2})
    other = entry(provenance={"b": 2, "a": 1})
    assert encode(one) == encode(other)


def test_the_format_is_as_it_was_first_written():
    made = Entry(
        key="0123456789abcdef",
        capacities=((2, 80, 90, 0),),
        rating=1.5,
        payload=b"plan",
        request=b"",
        provenance={"host": "h"},
    )
    assert encode(made).hex() == (
        "8966617374706c616e0d0a1a0a02000d0100007b226361706163697469657322"
        "3a5b5b322c38302c39302c305d5d2c226b6579223a2230313233343536373839"
        "616263646566222c227061727473223a5b7b22636865636b73756d223a223734"
        "623365353736663232643135366463613439313233633134363565383135222c"
        "226b696e64223a227061796c6f6164222c2273697a65223a347d2c7b22636865"
        "636b73756d223a22636165363639343164396566626434303465346438383735"
        "3865613637363730222c226b696e64223a2272657175657374222c2273697a65"
        "223a307d5d2c2270726f76656e616e6365223a7b22686f7374223a2268227d2c"
        "22726174696e67223a223078312e38303030303030303030303030702b30227d"
        "5b8d2a5d1848bba92769632c7dd984ae706c616e"
    )


def test_a_certificate_is_one_more_field_of_the_header():
    with_one, without = encode(entry(certificate=b"proof")), encode(entry())
    assert b'"certificate":"cHJvb2Y="' in with_one
    assert b"certificate" not in without
    assert decode(with_one).certificate == b"proof"
    assert decode(without).certificate == b""


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, [], {}, "", "?", "cHJvb2Y", "cHJvb2Y=\n", "cHJvb2Z=", "cHJv b2Y=", "\u00e9"),
        b64encode(bytes(MAX_CERTIFICATE + 1)).decode(),
        "A" * (MAX_HEADER // 2),
    ],
    ids=range(13),
)
def test_a_certificate_that_is_none_costs_the_bound_and_not_the_plan(value):
    made = decode(sealed(header(certificate=value)))
    assert made.certificate == b""
    assert made.key == key(1)


def test_the_largest_certificate_comes_back():
    largest = bytes(MAX_CERTIFICATE)
    assert decode(encode(entry(certificate=largest))).certificate == largest


def test_a_bound_that_nothing_proves_is_not_read():
    told = {"lower_bound": 1.5, "host": "a"}
    assert decode(sealed(header(provenance=told))).provenance == {"host": "a"}


def test_the_request_comes_back_unpacked():
    made = entry(request=pack_request(b"tables" * 1000))
    assert request_bytes(decode(encode(made))) == b"tables" * 1000


def test_no_request_unpacks_to_nothing():
    assert request_bytes(entry(request=b"")) == b""


def test_a_request_that_unpacks_to_too_much_is_refused_before_it_takes_the_memory():
    bomb = entry(request=zlib.compress(bytes(200 << 20), 9))
    tracemalloc.start()
    try:
        with pytest.raises(BadEntry, match="over 1048576 bytes when unpacked"):
            request_bytes(bomb, limit=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"no zlib", "can't be unpacked"),
        (pack_request(b"request")[:-1], "truncated"),
        (pack_request(b"request") + b"x", "extra bytes"),
    ],
)
def test_a_damaged_request_is_refused(packed, why):
    with pytest.raises(BadEntry, match=why):
        request_bytes(entry(request=packed))


def test_a_request_of_exactly_the_limit_is_unpacked():
    assert request_bytes(entry(request=pack_request(b"12345")), limit=5) == b"12345"


def test_every_flipped_bit_is_found():
    good = data(1)
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            assert reason(bytes(bad))


def test_every_byte_of_another_value_is_found():
    good = data(2)
    draw = random.Random(2)
    for at in range(len(good)):
        for value in draw.sample(range(256), 8):
            if value != good[at]:
                assert reason(good[:at] + bytes([value]) + good[at + 1 :])


def test_every_truncation_and_every_extension_is_found():
    good = data(3)
    for length in range(len(good)):
        assert reason(good[:length]).startswith("truncated" if length else "not an entry")
        assert reason(good[length + 1 :])
        assert reason(good + good[: length + 1]).startswith("extra bytes after its end")


def test_every_splice_of_two_entries_is_found():
    draw = random.Random(4)
    tried = 0
    while tried < 5000:
        one, other = data(draw.randrange(50)), data(draw.randrange(50))
        bad = one[: draw.randint(0, len(one))] + other[draw.randint(0, len(other)) :]
        if bad not in (one, other):
            assert reason(bad)
            tried += 1


def test_random_bytes_are_no_entry():
    draw = random.Random(5)
    for _ in range(1000):
        assert reason(draw.randbytes(draw.randint(0, 300))) == "not an entry"
        assert reason(
            MAGIC + struct.pack("<H", FORMAT.schema) + draw.randbytes(draw.randint(0, 300))
        )


@pytest.mark.parametrize(
    ("schema", "why"),
    [(0, "unknown schema 0"), (3, "newer schema 3"), (65535, "newer schema 65535")],
)
def test_another_schema_is_named(schema, why):
    assert reason(sealed(header(), schema=schema)).startswith(why)


def test_an_entry_of_the_first_schema_is_refused_with_the_way_out():
    old = bytes.fromhex(
        "8966617374706c616e0d0a1a0a01006f0000007b226361706163697469657322"
        "3a5b5b322c38302c39302c305d5d2c226b6579223a2230313233343536373839"
        "616263646566222c2270726f76656e616e6365223a7b22686f7374223a226822"
        "7d2c22726174696e67223a223078312e38303030303030303030303030702b30"
        "227d04000000706c616e00000000643713c987081542412e2be364239e8a"
    )
    assert reason(old) == (
        "older schema 1, this version reads 2: an older fastplan stored it, and the next plan "
        "replaces it"
    )


def test_a_header_over_the_limit_is_named_before_it_is_read():
    start = MAGIC + struct.pack("<HI", FORMAT.schema, MAX_HEADER + 1)
    assert reason(start) == f"header of {MAX_HEADER + 1} bytes, the limit is {MAX_HEADER}"


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("size", [MAX_SECTION + 1, -1, 1 << 62, True, 1.0, None])
def test_a_part_over_the_limit_is_named_before_it_is_read(at, size):
    described = parts()
    described[at]["size"] = size
    assert reason(sealed(header(parts=described))) == (
        f"parts[{at}].size must be from 0 to {MAX_SECTION}"
    )


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ([], "parts must be a payload and a request"),
        (parts()[:1], "parts must be a payload and a request"),
        (parts()[::-1], "parts must be a payload and a request"),
        ([*parts(), parts()[1]], "parts must be a payload and a request"),
        ([*parts(), {**parts()[1], "kind": "other", "size": 1}], "parts[2].size must be"),
        (..., "parts must be a list"),
        ({}, "parts must be a list"),
        ([1], "parts[0] must be an object"),
        ([{**parts()[0], "kind": 1}], "parts[0].kind must be a string"),
        ([{**parts()[0], "checksum": "0" * 31}], "parts[0].checksum must be 32 hex digits"),
        ([{**parts()[0], "checksum": "0" * 32}, parts()[1]], "payload: the checksum does not"),
    ],
    ids=range(11),
)
def test_other_parts_are_refused(described, why):
    assert why in reason(sealed(header(parts=described)))


def test_fields_of_later_versions_are_ignored():
    made = decode(sealed(header(zone="b", aisle=[{"deep": None}])))
    assert made.capacities == ((8, 1, 2, 3),)


@pytest.mark.parametrize("name", ["capacities", "key", "provenance", "rating"])
def test_a_missing_field_is_named(name):
    assert reason(sealed(header(**{name: ...}))) == f"header without '{name}'"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "../../../../etc/passwd"),
        ("key", "ABCDEF0123456789"),
        ("key", key(1) + "\n"),
        ("key", 17),
        ("capacities", [[0, 1, 1, 1]]),
        ("capacities", [[1, 1, 1]]),
        ("capacities", [[1, 1, 1, 1.0]]),
        ("capacities", [[True, 1, 1, 1]]),
        ("capacities", [[1, 2**63, 1, 1]]),
        ("capacities", {"a": 1}),
        ("capacities", "8888"),
        ("rating", 1.5),
        ("rating", "1.5"),
        ("rating", "nan"),
        ("rating", "inf"),
        ("rating", "0x1p+99999"),
        ("rating", None),
        ("provenance", []),
        ("provenance", {"a": None}),
        ("provenance", {"a": [1]}),
        ("provenance", {"a": True}),
        ("provenance", {"a": 2**63}),
    ],
)
def test_a_field_of_the_wrong_type_or_range_is_named(name, value):
    assert reason(sealed(header(**{name: value}))).startswith(f"header: `{name}` must ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "not valid JSON"),
        (b'{"a":' + b"9" * 100_000 + b"}", "not valid JSON"),
        (b'{"a":NaN}', "not finite"),
        (b'{"a":-Infinity}', "not finite"),
        (b'{"a":1e999}', "not finite"),
        (b'{"a":"\xc3\xa9"}', "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (header().replace(b":", b": "), "not canonical"),
        (header().replace(b'{"host":"a"}', b'{"host":"a","host":"a"}'), "not canonical"),
        (b'{"a":1.50}', "not canonical"),
        (b'{"a":"\\u0061"}', "not canonical"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
    ],
    ids=range(17),
)
def test_a_header_that_is_not_canonical_json_is_refused(text, why):
    assert why in reason(sealed(text))
