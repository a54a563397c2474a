"""Entries signed with a key: who has it may write plans, everybody else's are misses."""

from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import blake2b

from fastplan.cache.entry import BadEntry, Entry, encode

_LEAST_BYTES = 16


def as_key(key: str | bytes) -> bytes:
    """The key as the hash takes it. Raises ValueError for one that could be guessed."""
    secret = key.encode() if isinstance(key, str) else bytes(key)
    if len(secret) < _LEAST_BYTES:
        raise ValueError(f"`key` must have at least {_LEAST_BYTES} bytes, not {len(secret)}")
    return blake2b(secret).digest()


def sign(entry: Entry, key: bytes) -> Entry:
    """The entry with a signature over all of its fields."""
    return replace(entry, signature=_signature(entry, key))


def check_signature(entry: Entry, key: bytes) -> None:
    """Raises BadEntry unless the entry was signed with this key and not changed since."""
    if not entry.signature:
        raise BadEntry("it is not signed, and this cache has a key")
    if not hmac.compare_digest(entry.signature, _signature(entry, key)):
        raise BadEntry("it is signed with another key, or was changed")


def _signature(entry: Entry, key: bytes) -> str:
    body = encode(replace(entry, signature=""))
    return blake2b(body, digest_size=32, key=key).hexdigest()
