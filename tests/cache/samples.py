"""Entries to test with."""

import json
import random
import struct
from hashlib import blake2b

from fastplan.cache.entry import FORMAT, Entry, encode, pack_request
from fastplan.files.storage import checksum


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


def parts(payload=b"", request=b""):
    """The header's description of the parts."""
    return [
        {"checksum": checksum(data), "kind": kind, "size": len(data)}
        for kind, data in (("payload", payload), ("request", request))
    ]


def sealed(header, payload=b"", request=b"", schema=FORMAT.schema):
    """Any header in a valid frame, as an attacker could write it."""
    start = FORMAT.magic + struct.pack("<HI", schema, len(header)) + header
    return start + blake2b(start, digest_size=16).digest() + payload + request


def with_parts(header, payload=b"", request=b""):
    """Any header, with a description of these parts if it is an object."""
    described = b'"parts":' + json.dumps(parts(payload, request), separators=(",", ":")).encode()
    at = header.rfind(b'"provenance"')
    return header[:at] + described + b"," + header[at:] if at >= 0 else header
