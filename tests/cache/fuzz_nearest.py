"""Fuzz target for everything that reads entries of other requests.

Whatever an entry keeps as its request, plan, certificate or capacities: the nearest plan and the
reason of a miss are told without an error, and an honest entry beside it is still found.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

from fastplan.cache.entry import decode, encode, pack_request, request_bytes
from fastplan.cache.fingerprint import fingerprint
from fastplan.cache.nearest import nearest_plan
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores.base import Deadline, MemoryStore
from fastplan.cache.why_miss import explain_miss
from fastplan.model.plan import PlanRecord
from tests.cache.planned import keep
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data

_NAMES = ("a", "b", "c")
_STORE = MemoryStore()
_WANTED = keep(_STORE, names=_NAMES)
_HONEST = keep(_STORE, names=_NAMES, rows=20_000)
((_NAME, _DATA),) = _STORE.read(_HONEST)
_ENTRY = decode(_DATA)
_REQUEST = request_bytes(_ENTRY)
_CANONICAL = request_bytes(decode(_STORE.read(_WANTED)[0][1]))
_SPLIT = b"\x00--\x00"


def check(tried: bytes) -> None:
    request, _, payload = tried.partition(_SPLIT)
    store = MemoryStore()
    store.write(_HONEST, _NAME, _DATA)
    entry = replace(_ENTRY, key=fingerprint(request), request=pack_request(request))
    if payload:
        capacities = ((int.from_bytes(payload[:3], "little") + 1, *_ENTRY.capacities[0][1:]),)
        entry = replace(entry, payload=payload, certificate=payload, capacities=capacities)
    store.write(entry.key, "f" * 20 + _NAME[20:], encode(entry))
    plans = Cache(store, timeout=600.0)
    found = nearest_plan(plans, _CANONICAL, Deadline(600.0))
    assert found is not None
    assert found.fingerprint in (_HONEST, entry.key)
    told = explain_miss(_CANONICAL, plans)
    assert told.nearest is not None
    str(told)


def draw(draw: random.Random) -> bytes:
    """A good request with changed values or bytes, and sometimes a changed plan."""
    if draw.random() < 0.6:
        request = json.dumps(changed_data(draw, json.loads(_REQUEST), VALUES)).encode()
    else:
        request = changed_bytes(draw, _REQUEST, TOKENS)
    if draw.random() < 0.3:
        record = changed_bytes(draw, PlanRecord.unpack(_ENTRY.payload).pack(), TOKENS)
        request += _SPLIT + record
    return request


TARGET = Target(draw, check)
