"""Entries that are signed with a key."""

from dataclasses import replace

import pytest

from fastplan.cache.entry import BadEntry, check_signature, decode, encode, parse_key, sign
from tests.cache.samples import entry

KEY = parse_key("a secret that we share")


@pytest.mark.parametrize("number", [0, 1])
def test_a_signed_entry_is_accepted_after_a_round_through_a_file(number):
    signed = sign(entry(number), KEY)
    check_signature(decode(encode(signed)), KEY)


@pytest.mark.parametrize(
    "change",
    [
        {"key": "0" * 32},
        {"capacities": ((8, 1, 1, 1),)},
        {"rating": 1.0},
        {"payload": b"x"},
        {"request": b"x"},
        {"provenance": {}},
        {"certificate": b"x"},
        {"signature": "0" * 64},
    ],
    ids=str,
)
def test_any_change_after_signing_shows(change):
    signed = sign(entry(0), KEY)
    with pytest.raises(BadEntry, match="another key, or was changed"):
        check_signature(replace(signed, **change), KEY)


def test_another_key_and_no_signature_are_refused():
    with pytest.raises(BadEntry, match="another key"):
        check_signature(sign(entry(0), parse_key(b"another secret that is long")), KEY)
    with pytest.raises(BadEntry, match="not signed"):
        check_signature(entry(0), KEY)


def test_a_key_that_could_be_guessed_is_refused():
    with pytest.raises(ValueError, match="`key` must have at least 16 bytes, not 6"):
        parse_key("secret")


def test_a_key_with_bytes_that_are_not_utf8_is_those_bytes():
    assert parse_key(16 * b"x\xff") == parse_key(16 * "x\udcff")
