"""Entries to test with."""

import random
import struct
from hashlib import blake2b

from fastplan.cache.entry import MAGIC, SCHEMA, Entry, encode, pack_request


def key(number):
    return blake2b(str(number).encode(), digest_size=16).hexdigest()


def entry(number=0, **changes):
    """An entry that depends on the number alone."""
    draw = random.Random(number)
    fields = {
        "key": key(number),
        "capacities": ((draw.randint(1, 64), 80 << 30, 512 << 30, 0), (1, 40 << 30, 1 << 40, 7)),
        "rating": draw.uniform(0.1, 1000.0),
        "payload": draw.randbytes(draw.randint(50, 400)),
        "request": pack_request(draw.randbytes(64) * 3),
        "provenance": {"host": f"höst-{number}", "created": 1.7e9 + number, "tables": number},
        "certificate": draw.randbytes(draw.randint(1, 60)) if number % 2 else b"",
    }
    return Entry(**{**fields, **changes})


def data(number=0):
    return encode(entry(number))


def sealed(header, payload=b"", request=b"", schema=SCHEMA):
    """Any header in a frame that is right, as somebody with bad intent could make it."""
    body = MAGIC + struct.pack("<H", schema)
    for section in (header, payload, request):
        body += struct.pack("<I", len(section)) + section
    return body + blake2b(body, digest_size=16).digest()
