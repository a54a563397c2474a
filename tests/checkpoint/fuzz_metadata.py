"""Fuzzes the metadata of checkpoints: damaged pickles."""

import pickle
import random
import tempfile
from functools import cache
from pathlib import Path

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import parse_metadata
from tests.checkpoint.samples import write
from tests.fuzzing import Target, changed_bytes

# Opcodes that call or build something, and names that do harm.
TOKENS = [b"R", b"b", b"c", b"o", b"\x93", b"\x81", b"0", b"2", b"(", b"t", b"}", b"s", b"u", b"."]
TOKENS += [b"cos\nsystem\n", b"cbuiltins\neval\n", b"ctorch\nfloat16\n", b"ctorch\nSize\n"]


@cache
def good() -> tuple[bytes, ...]:
    with tempfile.TemporaryDirectory() as folder:
        data = (write(Path(folder) / "ckpt") / ".metadata").read_bytes()
    found = pickle.loads(data)
    return data, pickle.dumps(found, protocol=0), pickle.dumps(found, protocol=2)


def draw(source: random.Random) -> bytes:
    return changed_bytes(source, source.choice(good()), TOKENS)


def check(data: bytes) -> None:
    """It is read, or refused with a reason."""
    try:
        entries = parse_metadata(data, "ckpt")
    except CheckpointError:
        return
    for entry in entries.values():
        assert isinstance(entry.key, str)
        assert all("/" not in chunk.file for chunk in entry.chunks)


TARGET = Target(draw, check)
