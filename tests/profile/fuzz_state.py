"""Fuzz target for stored profiles.

Whatever the bytes, reading them returns a profile that can go on, or raises ContainerError or
TypeError. Inputs also get right checksums, so that the reader gets through to the columns.
"""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from fastplan.files.storage import ContainerError, checksum, describe, encode_start
from fastplan.profile import state
from fastplan.profile.run import merge_summaries, statistics_by_table, summaries_of
from fastplan.profile.sources import ProfileError
from fastplan.profile.state import Profile, parse_profile, write_profile
from fastplan.profile.table import TableProfile
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data

LIMIT = 64


@cache
def good() -> bytes:
    tables = {name: TableProfile(LIMIT) for name in ("a", "b")}
    ids = np.random.default_rng(0).zipf(1.3, 3000) % 500
    tables["a"].add(ids, np.ones(len(ids), np.int64))
    with tempfile.TemporaryDirectory() as folder:
        write_profile(Profile(tables, LIMIT, 1, 0, "x"), Path(folder) / "state")
        return (Path(folder) / "state").read_bytes()


def check(tried: bytes) -> None:
    try:
        profile = parse_profile(tried)
    except (ContainerError, TypeError):
        return
    for table in profile.tables.values():
        table.add([1, 2, 3], [3])
    try:
        statistics_by_table(merge_summaries([summaries_of(profile)]))
    except ProfileError:
        return


def draw(draw: random.Random) -> bytes:
    """A good profile with changed bytes, or with changed columns and right checksums."""
    if draw.random() < 0.3:
        return changed_bytes(draw, good(), TOKENS)
    columns = parse_profile(good()).tables["a"].columns()
    name = draw.choice(list(state._COLUMNS))
    raw = bytearray(columns[name].tobytes())
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(max(1, len(raw)))
        raw[at : at + 8] = draw.randbytes(8)[: len(raw) - at]
    parts = {each: columns[each].tobytes() for each in state._COLUMNS} | {name: bytes(raw)}
    body = b"".join(parts.values())
    lengths = [len(columns[each]) for each in state._COLUMNS]
    if draw.random() < 0.2:
        lengths = changed_data(draw, lengths, VALUES)
    part = describe("table", len(body), checksum(body), name="a", lengths=lengths)
    try:
        fields = {"limit": LIMIT, "done": 1, "batches": 0, "digest": ""}
        return encode_start(state._FORMAT, fields, [part]) + body
    except ValueError:
        return body


TARGET = Target(draw, check)
