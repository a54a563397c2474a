"""Fuzz target for canonical requests, which entries, plan files and a command line bring along.

Whatever the bytes, reading them returns a request or raises ValueError, and a request that was read
has a canonical form that is read as the same one.
"""

from __future__ import annotations

import json
import random

from fastplan.cache.fingerprint import canonical_request, parse_canonical, parse_search
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.plans.samples import random_request
from tests.problems import DEFAULT_SEARCH

_GOOD = [
    canonical_request(
        random_request(seed)[0], DEFAULT_SEARCH, ranks=8, context={"torchrec": "1.8.0"}
    )
    for seed in range(8)
]
_WORDS = [*SHARDING_TYPES[:4], *KERNELS[:4], "inf", "-inf", "nan", {"all": 1}, {"all": "a"}]


def check(tried: bytes) -> None:
    try:
        canonical = _again(tried)
    except ValueError:
        return
    assert _again(canonical) == canonical


def _again(canonical: bytes) -> bytes:
    request, document = parse_canonical(canonical)
    search = parse_search(document)
    ranks, context = document["ranks"], document["context"]
    return canonical_request(request, search, ranks=ranks, context=context)


def draw(draw: random.Random) -> bytes:
    """A good request with a few changes, as data or as text."""
    good = draw.choice(_GOOD)
    if draw.random() < 0.6:
        return json.dumps(changed_data(draw, json.loads(good), VALUES + _WORDS)).encode()
    return changed_bytes(draw, good, TOKENS)


TARGET = Target(draw, check)
