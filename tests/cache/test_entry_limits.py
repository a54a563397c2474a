"""The limits of entries: of memory while they are read, and of what can be written."""

import math
import random
import tracemalloc

import pytest

from fastplan.cache.entry import (
    MAX_CERTIFICATE,
    MAX_HEADER,
    MAX_SECTION,
    BadEntry,
    decode,
    encode,
)
from tests.cache.samples import entry, parts, sealed
from tests.cache.test_entry import header


def test_decoding_takes_no_more_memory_than_a_few_times_the_entry():
    half = bytes(8 << 20)
    large = sealed(header(parts=parts(half, half)), payload=half, request=half)
    tracemalloc.start()
    try:
        decode(large)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(large)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "short"),
        ("capacities", [(1, 1, 1, 1)]),
        ("capacities", ((0, 1, 1, 1),)),
        ("rating", math.nan),
        ("rating", 1),
        ("payload", bytearray(3)),
        ("request", "text"),
        ("provenance", {"a": math.inf}),
        ("provenance", {1: "a"}),
        ("provenance", {"a": "\ud800"}),
        ("certificate", "text"),
        ("certificate", bytes(MAX_CERTIFICATE + 1)),
    ],
)
def test_an_entry_that_could_not_come_back_can_not_be_made(name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        entry(**{name: value})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("header", {"provenance": {"a": "b" * MAX_HEADER}}),
        ("payload", {"payload": bytes(MAX_SECTION + 1)}),
        ("request", {"request": bytes(MAX_SECTION + 1)}),
    ],
)
def test_a_section_over_its_limit_is_not_written(name, changes):
    with pytest.raises(ValueError, match=f"`{name}` must be at most"):
        encode(entry(**changes))


def test_damaged_entries_with_a_right_checksum_are_refused_or_whole():
    draw = random.Random(6)
    good = header()
    whole = refused = 0
    for _ in range(5000):
        bad = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            bad[draw.randrange(len(bad))] = draw.choice(b'0123456789aefnx[]{},:".-+ \\\x00\xff')
        try:
            made = decode(sealed(bytes(bad)))
        except BadEntry:
            refused += 1
        else:
            whole += 1
            assert decode(encode(made)) == made
    assert whole > 0
    assert refused > 1000
