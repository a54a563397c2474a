"""Fuzz target for the entry parser.

For any bytes, `decode` and `request_bytes` return or raise BadEntry, and an entry that decodes
survives another round. Every input is tried unchanged, and as the header of a frame with a valid
checksum and with or without its parts.
"""

from __future__ import annotations

import json
import random

from fastplan.cache.entry import BadEntry, decode, encode, request_bytes
from tests.cache.samples import data, sealed, with_parts
from tests.fuzzing import TOKENS, Target, changed_bytes

LIMIT = 1 << 16
FIELDS = [
    b'"parts":',
    b'"size":',
    b'"kind":"payload"',
    b'"key":',
    b'"rating":',
    b'"certificate":',
    b'"AAAA"',
    b"==",
]


def check(tried: bytes) -> None:
    for whole in (tried, sealed(tried), sealed(with_parts(tried))):
        try:
            entry = decode(whole)
        except BadEntry:
            continue
        assert decode(encode(entry)) == entry
        try:
            request_bytes(entry, LIMIT)
        except BadEntry:
            continue


def draw(draw: random.Random) -> bytes:
    """A good entry, or its header, with a few random changes."""
    good = data(draw.randrange(100))
    if draw.random() < 0.7:
        _, end = json.JSONDecoder().raw_decode(good[good.index(b"{") :].decode("latin-1"))
        good = good[good.index(b"{") :][:end]
    return changed_bytes(draw, good, TOKENS + FIELDS)


TARGET = Target(draw, check)
