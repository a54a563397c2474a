"""Fuzz target for packed certificates.

Whatever the bytes, they prove nothing or a bound that a plan of the problem keeps. Every input is
tried twice: as it is, and with its end compressed, which the parser gets through to.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from math import inf, nan

from fastplan.engine.optimize import Optimize, OptimizeResult, optimize
from fastplan.engine.packed_certificate import pack_certificate, proven_bound
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.objectives import NO_OBJECTIVES
from tests.fuzzing import Target, changed_bytes
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, small_problem, table

HEAD = 25
NUMBERS = [struct.pack("<d", x) for x in (0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, inf, nan)]


@cache
def _good() -> tuple[Problem, OptimizeResult, bytes]:
    """A problem, its plan, and the certificate of its bound with nothing compressed."""
    tables = [table(f"t{i}", 50_000, 64, pooling=p) for i, p in enumerate((90, 40, 9, 8))]
    problem = Problem(estimate(request(tables, 8, 4, ALL_TYPES)), small_problem().cluster)
    settings = Optimize(time_budget=None, move_budget=50_000)
    found = optimize(problem, DEFAULT_SEARCH, settings)
    packed = pack_certificate(found.certificate, problem, NO_OBJECTIVES, ())
    return problem, found, packed[:HEAD] + zlib.decompress(packed[HEAD:])


def check(tried: bytes) -> None:
    problem, found, _ = _good()
    for packed in (tried, tried[:HEAD] + zlib.compress(tried[HEAD:])):
        # Whoever would be told a bound above the plan must not be told by luck alone.
        bound = proven_bound(packed, inf, problem, NO_OBJECTIVES, ())
        assert bound is None or 0 <= bound <= found.rating


def draw(draw: random.Random) -> bytes:
    """A good certificate with a few random changes, of its length or of another."""
    good = _good()[2]
    if draw.random() < 0.3:
        return changed_bytes(draw, good, [*NUMBERS, b"\1"])
    made = bytearray(good)
    for _ in range(draw.randint(1, 4)):
        at = 1 + 8 * draw.randrange(len(good) // 8)
        made[at : at + 8] = draw.choice([*NUMBERS, draw.randbytes(8)])
    return bytes(made[: len(good)])


TARGET = Target(draw, check)
