"""Fuzz target for the entry parser.

Whatever the bytes, `decode` and `request_bytes` return or raise BadEntry, and an entry that decodes
survives another round. Every input is tried twice: as it is, and as the header of a frame with a
right checksum, which the parser gets through to.
"""

from __future__ import annotations

import random

from fastplan.cache.entry import BadEntry, decode, encode, request_bytes
from tests.cache.samples import data, sealed
from tests.fuzzing import TOKENS, Target, changed_bytes

LIMIT = 1 << 16
FIELDS = [b'"key":', b'"rating":', b'"certificate":', b'"AAAA"', b"=="]


def check(tried: bytes) -> None:
    for whole in (tried, sealed(tried)):
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
        good = good[good.index(b"{") : good.index(b"}") + 40]
    return changed_bytes(draw, good, TOKENS + FIELDS)


TARGET = Target(draw, check)
