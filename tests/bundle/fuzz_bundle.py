"""Fuzz target for the bundle parser.

Whatever the bytes, parsing a bundle and reading its plans return or raise BundleError. Every input
is tried as it is, and as the header of a frame with a right checksum, which the parser gets through
to.
"""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from fastplan.bundle.bundle import parse_bundle
from fastplan.bundle.format import BundleError, content_bytes
from fastplan.cache.fingerprint import canonical_json
from tests.bundle.samples import data, sealed
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data

WORDS = [b'"size":', b'"kind":', b"../", b"/", b'"parts":[]', b'"slots":[0]', b'"plan"']
WORDS += [b'"kernel"', b'"other"']
NAMES = ["../a.so", "plan", "kernel", "artifacts", "other", [1023], [1024], {"a": {}}]


@cache
def _good() -> tuple[bytes, dict[str, Any], bytes]:
    """A bundle, what its header tells, and its parts."""
    whole = data()
    told, _ = json.JSONDecoder().raw_decode(whole[whole.index(b"{") :].decode("latin-1"))
    return whole, told, whole[parse_bundle(whole).header.plans[0].span.at :]


def check(tried: bytes) -> None:
    for whole in (tried, sealed(tried), sealed(tried, _good()[2])):
        try:
            bundle = parse_bundle(whole)
            bundle.find_damage()
            content_bytes(bundle.content())
            bundle.plans()
        except BundleError:
            continue


def draw(draw: random.Random) -> bytes:
    """A good bundle, or its header, with a few random changes."""
    whole, told, _ = _good()
    if draw.random() < 0.5:
        return canonical_json(changed_data(draw, told, VALUES + NAMES))
    good = whole if draw.random() < 0.3 else canonical_json(told)
    return changed_bytes(draw, good, TOKENS + WORDS)


TARGET = Target(draw, check)
