"""One process of the torture test: reads and writes a directory at random, and reports writes.

    python -m tests.cache.hammer <root> <seed> <operations> <max_bytes> <most_writes>

Prints a line per write once it is done. Ends with an error as soon as a read gives anything but
whole entries of that key, or misses what was written just before, unless it may have been evicted.
After `most_writes` it waits to be killed; 0 is no limit.
"""

import os
import random
import signal
import sys

from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import DirectoryStore
from tests.cache.samples import entry, key

SHARED_KEYS = 40
UNLIMITED = 1 << 40


def run(root, seed, operations, max_bytes, most_writes):
    store = DirectoryStore(root, max_bytes=max_bytes)
    draw = random.Random(seed)
    writes = 0
    for step in range(operations):
        # Few keys that all processes fight for, and many of its own.
        number = draw.randrange(SHARED_KEYS) if draw.random() < 0.5 else 1000 * (seed + 1) + step
        kind = draw.random()
        if kind < 0.5:
            check(store, number)
        elif kind < 0.6:
            store.touch(key(number), f"own-{seed}")
        else:
            payload = draw.randbytes(draw.randint(100, 2000))
            made = encode(entry(number, payload=payload, provenance={"seed": seed, "step": step}))
            name = draw.choice(["any", f"own-{seed}"])
            store.write(key(number), name, made)
            os.write(1, f"{number} {name} {step}\n".encode())
            writes += 1
            if writes == most_writes:
                signal.pause()
            found = dict(check(store, number))
            if name not in found and max_bytes < UNLIMITED:
                continue  # this process may have slept while others wrote and evicted
            if name not in found or (name != "any" and found[name].provenance["step"] != step):
                raise AssertionError(f"{number} {name} {step} was written and is not there")


def check(store, number):
    """The entries of a key, which must all be whole."""
    found = [(name, decode(data)) for name, data in store.read(key(number))]
    for name, made in found:
        assert made.key == key(number), f"{name} is of another key"
    return found


if __name__ == "__main__":
    run(sys.argv[1], *map(int, sys.argv[2:]))
