"""Fuzz targets: random changes to good inputs, which no parser may answer in a way of its own.

    python -m tests.fuzzing                              all targets, a minute each
    python -m tests.fuzzing specs entries --seconds 600  some of them, for longer
    python -m tests.fuzzing specs --guided               one, led by the lines that inputs reach

The last one needs atheris (`pip install atheris`), which changes inputs that reach new lines.
The first input that breaks a rule is printed as hex and ends the run with an error.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Inputs that atheris begins with, and the most bytes of those that it makes of them.
_DRAWN, _LONGEST = 300, 1 << 16
# atheris itself keeps about a kilobyte of each input: 4 GB in ten minutes.
_ATHERIS_MB = 8192
# Every module has a TARGET.
TARGETS = {
    "certificates": "tests.engine.fuzz_certificate",
    "entries": "tests.cache.fuzz_entry",
    "nearest": "tests.cache.fuzz_nearest",
    "requests": "tests.cache.fuzz_request",
    "records": "tests.model.fuzz_record",
    "bundles": "tests.bundle.fuzz_bundle",
    "specs": "tests.spec.fuzz_spec",
    "skus": "tests.spec.fuzz_sku",
    "sweeps": "tests.sweep.fuzz_sweep",
    "statistics": "tests.spec.fuzz_ids",
    "plans": "tests.plans.fuzz_plan",
    "profiles": "tests.profile.fuzz_state",
    "ids": "tests.profile.fuzz_source",
    "measurements": "tests.measure.fuzz_runs",
    "checkpoints": "tests.checkpoint.fuzz_metadata",
    "logs": "tests.ett.fleet.fuzz_logs",
}
# What formats made of JSON stumble over.
TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"NaN", b"1e999", b"1.5", b"-0", b"-1"]
TOKENS += [b"\\ud800", b"0x1p+0", b"null", b"true", b"9" * 30, b"\x00", b"\xff", b"[" * 2000]
VALUES = [None, True, 0, 1, -1, 7, 1 << 40, 1 << 64, 0.5, -1.5, 1e300, "", "a", "\ud800"]
VALUES += ["0" * 32, "../a", [], {}, [0], [-1], [1 << 40], ["a"], {"a": []}, {"a": ["b"]}, {"": 0}]


class Target(NamedTuple):
    """One parser: inputs to try, and what must hold for any of them."""

    draw: Callable[[random.Random], bytes]
    check: Callable[[bytes], object]


def changed_bytes(draw: random.Random, good: bytes, tokens: Sequence[bytes]) -> bytes:
    """A few places overwritten, cut or torn apart."""
    made = bytearray(good)
    for _ in range(draw.randint(1, 6)):
        at = draw.randint(0, len(made))
        end = at + draw.choice([0, 1, 1, 2, 4, 30])
        made[at:end] = draw.choice([*tokens, draw.randbytes(draw.randint(0, 8))])
    return bytes(made)


def changed_data(draw: random.Random, good: Any, values: Sequence[Any]) -> Any:
    """Plain data with up to three values replaced, removed or moved elsewhere."""
    made = copy.deepcopy(good)
    for _ in range(draw.randint(1, 3)):
        _change(draw, made, values)
    return made


def _change(draw: random.Random, place: Any, values: Sequence[Any]) -> None:
    names = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not names:
        return
    name = draw.choice(names)
    if isinstance(place[name], dict | list) and place[name] and draw.random() < 0.8:
        _change(draw, place[name], values)
    elif draw.random() < 0.2:
        del place[name]
    elif draw.random() < 0.2:
        place[name] = copy.deepcopy(place[draw.choice(names)])
    else:
        # One of the same type gets past the first check.
        same = [value for value in values if type(value) is type(place[name])]
        alike = same and draw.random() < 0.5
        place[name] = copy.deepcopy(draw.choice(same if alike else values))


def fuzz(target: Target, goes_on: Callable[[int], bool], seed: int) -> int:
    """Tries as long as it is told to, and returns how many inputs that were."""
    draw = random.Random(seed)
    tried = 0
    while goes_on(tried):
        one = target.draw(draw)
        try:
            target.check(one)
        except BaseException:
            print(f"breaks the parser: {one.hex()}", file=sys.stderr)
            raise
        tried += 1
    return tried


def fuzz_guided(name: str, seconds: float, seed: int) -> None:
    """Lets atheris change inputs of a target, from some that the target draws; ends the process."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["fastplan"], enable_loader_override=False):
        target = target_of(name)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as corpus:
        for number in range(_DRAWN):
            (Path(corpus) / str(number)).write_bytes(target.draw(draw))
        limits = [f"-max_total_time={seconds:.0f}", f"-seed={seed or 1}", f"-max_len={_LONGEST}"]
        limits.append(f"-rss_limit_mb={_ATHERIS_MB}")
        atheris.Setup([name, corpus, *limits], lambda one: target.check(one))
        atheris.Fuzz()


def target_of(name: str) -> Target:
    found: Target = importlib.import_module(TARGETS[name]).TARGET
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each (default: 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guided", action="store_true", help="one target, by atheris")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    if options.guided:
        if len(options.names) != 1:
            parser.error("--guided takes one target")
        fuzz_guided(options.names[0], options.seconds, options.seed)
    for name in options.names or TARGETS:
        end = time.monotonic() + options.seconds
        count = fuzz(target_of(name), lambda _, end=end: time.monotonic() < end, options.seed)
        print(f"{name}: {count:,} inputs, none breaks the parser", flush=True)


if __name__ == "__main__":
    main()
