"""Fuzz target for the bundle parser.

    python -m tests.bundle.fuzz_bundle --seconds 60

Whatever the bytes, parsing a bundle and reading its plans must return or raise BadBundle. Every
input is tried as it is, and as the header of a frame with a right checksum, which the parser gets
through to. The first input that breaks the rule is printed as hex and ends the run.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from fastplan.bundle.bundle import parse_bundle
from fastplan.bundle.content import content_bytes
from fastplan.bundle.format import BadBundle
from fastplan.cache.fingerprint import canonical_json
from tests.bundle.samples import data, sealed

TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"NaN", b"1e999", b"1.5", b"-1", b"\\ud800"]
TOKENS += [b"null", b"true", b"9" * 30, b"\x00", b"\xff", b'"size":', b'"kind":', b"../", b"/"]
TOKENS += [b"[" * 2000, b'"parts":[]', b'"slots":[0]', b'"plan"', b'"kernel"', b'"other"']
VALUES = [None, True, 0, 1, -1, 7, 1 << 40, "", "0" * 32, "\ud800", "../a.so", "plan", "kernel"]
VALUES += ["artifacts", "other", [], {}, [0], [1023], [1024], {"a": []}, {"a": ["b"]}, {"a": {}}]


def try_one(tried: bytes, parts: bytes) -> None:
    for whole in (tried, sealed(tried), sealed(tried, parts)):
        try:
            bundle = parse_bundle(whole)
            bundle.damage()
            content_bytes(bundle.content())
            bundle.plans()
        except BadBundle:
            continue


def changed(draw: random.Random, good: bytes, told: dict[str, Any]) -> bytes:
    """A good bundle, or its header, with a few random changes."""
    if draw.random() < 0.5:
        fields = copy.deepcopy(told)
        for _ in range(draw.randint(1, 3)):
            _change(draw, fields)
        return canonical_json(fields)
    made = bytearray(good if draw.random() < 0.3 else canonical_json(told))
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(made))
        end = at + draw.choice([0, 1, 1, 2, 4, 30])
        made[at:end] = draw.choice([*TOKENS, draw.randbytes(draw.randint(0, 8))])
    return bytes(made)


def _change(draw: random.Random, place: Any) -> None:
    """Puts another value somewhere, or removes one."""
    names = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not names:
        return
    name = draw.choice(names)
    if isinstance(place[name], dict | list) and place[name] and draw.random() < 0.8:
        _change(draw, place[name])
    elif draw.random() < 0.2:
        del place[name]
    else:
        place[name] = copy.deepcopy(draw.choice(VALUES))


def loop(goes_on: Callable[[int], bool], seed: int) -> int:
    """Tries as long as it is told to, and returns how many inputs that were."""
    draw = random.Random(seed)
    good = data()
    parts = good[parse_bundle(good).header.plans[0].span.at :]
    told, _ = json.JSONDecoder().raw_decode(good[good.index(b"{") :].decode("latin-1"))
    tried = 0
    while goes_on(tried):
        one = changed(draw, good, told)
        try:
            try_one(one, parts)
        except BaseException:
            print(f"breaks the parser: {one.hex()}", file=sys.stderr)
            raise
        tried += 1
    return tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    count = loop(lambda _: time.monotonic() < end, options.seed)
    print(f"{count} inputs, none breaks the parser")


if __name__ == "__main__":
    main()
