"""Bundles to test with: real plans, and code that nobody runs."""

import struct
from functools import cache
from hashlib import blake2b
from zlib import crc32

from fastplan.bundle.bundle import parse_bundle
from fastplan.bundle.format import FORMAT, Artifacts, Blob, Content, Kernel, content_bytes
from fastplan.bundle.gathering import stored_plans
from fastplan.cache.fingerprint import canonical_json
from fastplan.cache.stores import MemoryStore
from tests.cache.planned import keep

FACTS = {
    "fastplan": "0.1.0",
    "torch": "2.13.0+cpu",
    "python": "3.11",
    "device": "cpu",
    "machine": "x86_64",
    "cpu": "Some CPU, features 01234567",
    "libc": "glibc 2.36",
}
NAMES = {"inductor": ("f1", "f2"), "aot_autograd": ("a1",)}
KERNEL = "ab/cabcdef.main.so"


def plans(*rows):
    """Entries of real plans by key and name, one for each number of rows."""
    found = {}
    for count in rows or (10_000,):
        found.update(_planned(count))
    return found


@cache
def _planned(rows):
    """Made once: an entry has the time at which it was made."""
    store = MemoryStore()
    keep(store, rows=rows)
    return stored_plans(store)


def artifacts(*slots, names=None, data=b"artifacts"):
    return Artifacts(frozenset(slots or (0,)), NAMES if names is None else names, Blob.of(data))


def torch_bytes(rest):
    """As torch writes artifacts: a checksum, a version, and what only torch reads."""
    body = (1).to_bytes(8, "big") + rest
    return crc32(body).to_bytes(4, "big") + body


def kernel(*slots, data=b"library"):
    return Kernel(frozenset(slots or (0,)), Blob.of(data))


def content(**changes):
    """Two plans, artifacts and a kernel."""
    fields = {
        "model": "ranker",
        "facts": FACTS,
        "plans": {plan: Blob.of(data) for plan, data in plans(10_000, 20_000).items()},
        "artifacts": (artifacts(),),
        "kernels": {KERNEL: kernel()},
    }
    return Content(**{**fields, **changes})


def data(**changes):
    return content_bytes(content(**changes))


def bundle(**changes):
    return parse_bundle(data(**changes))


def sealed(header, parts=b"", schema=FORMAT.schema):
    """Any header in a valid frame, as an attacker could write it."""
    if not isinstance(header, bytes):
        header = canonical_json(header)
    start = FORMAT.magic + struct.pack("<HI", schema, len(header)) + header
    return start + blake2b(start, digest_size=16).digest() + parts
