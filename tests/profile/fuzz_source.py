"""Fuzz target for files with ids, npz and Parquet.

Whatever the bytes, reading them yields batches of whole numbers or raises ProfileError, and a
profile takes every batch or raises ProfileError.
"""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

from fastplan.profile.sources import ProfileError, file_units, read_unit
from tests.fuzzing import TOKENS, Target, changed_bytes
from tests.profile.samples import FEATURES, write_npz, write_parquet

_KINDS = ("npz", "parquet")
_WORDS = [b"\x93NUMPY", b"'descr': '<i8'", b"'|O'", b"'<f8'", b"(400,)", b"(-1,)", b"PK\x03\x04"]
_WORDS += [b"PAR1", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"]


@cache
def _good() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        write_npz(Path(name) / "a.npz", 0)
        write_parquet(Path(name) / "a.parquet", 0)
        return {kind: (Path(name) / f"a.{kind}").read_bytes() for kind in _KINDS}


def check(tried: bytes) -> None:
    kind, _, data = tried.partition(b"\n")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / ("tried.npz" if kind == b"npz" else "tried.parquet")
        file.write_bytes(data)
        try:
            for unit in file_units([str(file)]):
                for batch in read_unit(unit, FEATURES):
                    assert batch
        except ProfileError:
            return


def draw(draw: random.Random) -> bytes:
    kind = draw.choice(_KINDS)
    return kind.encode() + b"\n" + changed_bytes(draw, _good()[kind], TOKENS + _WORDS)


TARGET = Target(draw, check)
