"""Fuzz target for the entry parser.

    python -m tests.cache.fuzz_entry --seconds 60

Whatever the bytes, `decode` and `request_bytes` must return or raise BadEntry, and an entry that
decodes must survive another round. Every input is tried twice: as it is, and as the header of a
frame with a right checksum, which the parser gets through to. Uses atheris where it is installed
(its own options follow `--`), else a loop of random changes to good entries. The first input that
breaks the rule is printed as hex and ends the run with an error.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from fastplan.cache.entry import BadEntry, decode, encode, request_bytes
from tests.cache.samples import data, sealed

LIMIT = 1 << 16
TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"NaN", b"1e999", b"-0", b"\\ud800", b"0x1p+0"]
TOKENS += [b"null", b"true", b"9" * 30, b"\x00", b"\xff", b'"key":', b'"rating":', b"[" * 2000]


def try_one(tried: bytes) -> None:
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


def changed(draw: random.Random) -> bytes:
    """A good entry, or its header, with a few random changes."""
    made = bytearray(data(draw.randrange(100)))
    if draw.random() < 0.7:
        made = made[made.index(b"{") : made.index(b"}") + 40]
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(made))
        end = at + draw.choice([0, 1, 1, 2, 4, 30])
        made[at:end] = draw.choice([*TOKENS, draw.randbytes(draw.randint(0, 8))])
    return bytes(made)


def loop(seconds: float, seed: int) -> int:
    """Tries for so long, and returns how many inputs that were."""
    draw = random.Random(seed)
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        one = changed(draw)
        try:
            try_one(one)
        except BaseException:
            print(f"breaks the parser: {one.hex()}", file=sys.stderr)
            raise
        tried += 1
    return tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options, rest = parser.parse_known_args()
    try:
        import atheris
    except ImportError:
        print(f"{loop(options.seconds, options.seed)} inputs, none breaks the parser")
        return
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], f"-max_total_time={options.seconds:.0f}", *rest], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
