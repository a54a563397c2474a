"""Fuzz target for packed plans.

Whatever the bytes, `unpack` returns a plan that packs again, or raises BadRecord. Inputs are tried
as they are, and as the columns behind a right head, which the reader gets through to.
"""

from __future__ import annotations

import random
import struct
import zlib

from fastplan.engine.solve import solve
from fastplan.model.plan import BadRecord, PlanRecord
from tests.fuzzing import TOKENS, Target, changed_bytes
from tests.problems import DEFAULT_SEARCH, small_problem

_PROBLEM = small_problem()
_FOUND = solve(_PROBLEM, DEFAULT_SEARCH)
_GOOD = PlanRecord.of(_PROBLEM.space, _FOUND.options, _FOUND.ranks, _FOUND.rating).pack()
_HEAD = struct.Struct("<BIId")


def check(tried: bytes) -> None:
    for whole in (tried, _behind_a_head(tried)):
        try:
            record = PlanRecord.unpack(whole)
        except BadRecord:
            continue
        assert PlanRecord.unpack(record.pack()).pack() == record.pack()


def _behind_a_head(body: bytes) -> bytes:
    tables = min(len(body) // 14, 6)
    shards = (len(body) - tables * 14) // 4
    cut = body[: tables * 14 + shards * 4]
    return _HEAD.pack(1, tables, shards, 1.0) + zlib.compress(cut)


def draw(draw: random.Random) -> bytes:
    """A good plan, or its columns, with a few random changes."""
    body = zlib.decompress(_GOOD[_HEAD.size :])
    return changed_bytes(draw, draw.choice([_GOOD, body]), TOKENS)


TARGET = Target(draw, check)
