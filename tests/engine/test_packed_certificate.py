"""A packed certificate proves what it proved before, and nothing when it was made up."""

import math
import random
import struct
import time
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest

from fastplan.cache.entry import MAX_CERTIFICATE
from fastplan.engine.certificate import Certificate, Slab, lower_bound
from fastplan.engine.optimize import Optimize, check_bound, optimize
from fastplan.engine.packed_certificate import (
    MAX_PACKED,
    BadCertificate,
    pack_certificate,
    proven_bound,
    unpack_certificate,
)
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.objectives import NO_OBJECTIVES, Objectives
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, GIB, request, small_problem, table

PINS = Objectives(pins={"t3": 2}, together=[["t4", "t5"]])
TOGETHER = Objectives(together=[["t0", "t1"]])


def job(*, backwards=False, hbm=GIB):
    """A problem, and the names of its tables; their options in either order."""
    tables = [table(f"t{i}", 50_000, 64, pooling=p) for i, p in enumerate((90, 40, 30, 9, 8, 7, 6))]
    asked = request(tables, 8, 4, ALL_TYPES)
    if backwards:
        asked = replace(asked, menus=tuple(menu[::-1] for menu in asked.menus))
    cluster = replace(small_problem().cluster, rank_hbm=(hbm,) * 8)
    return Problem(estimate(asked), cluster), [(each.path, each.name) for each in tables]


PROBLEM, NAMES = job()
MOVES = Optimize(time_budget=None, move_budget=100_000)
PLAN = optimize(PROBLEM, DEFAULT_SEARCH, MOVES)
PACKING = lower_bound(PROBLEM, upper=PLAN.rating)
AVERAGES = lower_bound(PROBLEM, upper=PLAN.rating, knapsacks=0)


def pack(certificate, problem=PROBLEM, objectives=NO_OBJECTIVES):
    return pack_certificate(certificate, problem, objectives, NAMES)


def proven(packed, problem=PROBLEM, objectives=NO_OBJECTIVES, rating=PLAN.rating):
    return proven_bound(packed, rating, problem, objectives, NAMES)


def frame(body, *, version=1, slabs=1, options=0, value=1.0, threshold=1.0):
    head = struct.pack("<BIIdd", version, slabs, options, value, threshold)
    return head + zlib.compress(body, 9)


@pytest.mark.parametrize("certificate", [AVERAGES, PACKING], ids=["averages", "packing"])
def test_a_certificate_comes_back_and_proves_the_same(certificate):
    packed = pack(certificate)
    assert packed == pack(certificate)
    assert 0 < len(packed) < 8192
    again = unpack_certificate(packed, PROBLEM.space)
    assert (again.value, again.threshold) == (certificate.value, certificate.threshold)
    for slab, before in zip(again.slabs, certificate.slabs, strict=True):
        assert replace(slab, reward=None) == replace(before, reward=None)
        assert np.array_equal(slab.reward, before.reward)
    assert proven(packed) == certificate.value


def test_options_in_another_order_change_nothing():
    other, _ = job(backwards=True)
    assert (other.space.option_type != PROBLEM.space.option_type).any()
    assert any(slab.reward is not None for slab in PACKING.slabs)
    assert proven(pack(PACKING), other) == PACKING.value


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("rules", [PINS, TOGETHER], ids=["pins", "together"])
def test_a_bound_on_plans_that_keep_rules_is_checked_with_the_rules(rules, backwards):
    found = optimize(PROBLEM, DEFAULT_SEARCH, replace(MOVES, objectives=rules), names=NAMES)
    packed = pack(found.certificate, objectives=rules)
    there, _ = job(backwards=backwards)
    assert proven(packed, there, rules, found.rating) == found.lower_bound
    assert proven(packed, there, Objectives(pins={"nobody": 0}), found.rating) is None


def test_a_bound_on_plans_that_keep_rules_says_nothing_of_others():
    found = optimize(PROBLEM, DEFAULT_SEARCH, replace(MOVES, objectives=TOGETHER), names=NAMES)
    assert found.lower_bound > PLAN.rating
    assert any(slab.reward is not None for slab in found.certificate.slabs)
    assert proven(pack(found.certificate, objectives=TOGETHER), rating=math.inf) is None


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_other_capacities_have_a_bound_of_their_own(factor):
    tight, _ = job(hbm=12 << 20)
    rating = optimize(tight, DEFAULT_SEARCH, MOVES).rating
    # A slab with rewards rules out all plans below the threshold, or none if there is more room.
    found = lower_bound(tight, upper=rating, knapsacks=0)
    assert any(max(slab.memory) > 0 for slab in found.slabs)
    other, _ = job(hbm=int((12 << 20) * factor))
    bound = proven(pack(found, tight), other, rating=math.inf)
    assert bound == check_bound(other, found)
    assert 0 < bound <= found.value * (1 if factor > 1 else math.inf)
    best = optimize(other, DEFAULT_SEARCH, MOVES)
    assert bound <= best.rating


def test_an_entry_has_room_for_whatever_is_packed():
    assert MAX_CERTIFICATE == MAX_PACKED


def test_a_bound_above_a_plan_is_not_returned():
    assert proven(pack(PACKING), rating=PACKING.value * 0.999) is None


def test_what_claims_too_much_proves_less():
    forged = replace(PACKING, value=1e9, threshold=PLAN.rating * 1.1)
    assert proven(pack(forged)) is None
    assert proven(pack(replace(PACKING, value=1e9))) <= PLAN.rating
    nothing = Certificate(value=1e9, threshold=0.0, slabs=())
    assert proven(pack(nothing)) is None


def test_a_bound_of_zero_is_proven():
    assert proven(pack(Certificate(value=0.0, threshold=0.0, slabs=()))) == 0.0


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"", "0 bytes"),
        (b"x" * 10, "10 bytes"),
        (bytes(MAX_PACKED + 1), "65537 bytes"),
        (frame(b"", version=2), "version 2"),
        (frame(b"", slabs=0)[:-1], "size does not match"),
        (frame(b"", slabs=0) + b"x", "size does not match"),
        (frame(b"")[:25] + b"no zlib", "can't be read"),
        (frame(bytes(48)), "size does not match"),
        (frame(bytes(50)), "size does not match"),
        (frame(bytes(48) + b"\1"), "malformed"),
        (frame(bytes(48) + b"\2" + bytes(8 * 91), options=91), "malformed"),
        (frame(bytes(49), options=91), "malformed"),
        (frame(bytes(48) + b"\1" + bytes(8 * 90), options=90), "90 options"),
        (frame(bytes(49 * 2000), slabs=2000), "2000 slabs"),
        (frame((bytes(48 * 65) + b"\1" * 65 + bytes(65 * 8 * 91)), slabs=65, options=91), "65 of"),
        (frame(bytes(50 << 20)), "size does not match"),
    ],
    ids=range(16),
)
def test_bytes_that_are_no_certificate_are_refused_by_name(packed, why):
    tracemalloc.start()
    try:
        with pytest.raises(BadCertificate, match=why):
            unpack_certificate(packed, PROBLEM.space)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert proven(packed) is None


def test_what_would_take_long_to_check_is_neither_kept_nor_checked():
    tables = [table(f"t{i}", 50_000, 256) for i in range(400)]
    problem = Problem(estimate(request(tables, 8, 4, ALL_TYPES)), small_problem().cluster)
    slab = Slab(
        low=0.0,
        high=math.inf,
        memory=(0.0, 0.0, 0.0),
        uniform=0.0,
        reward=np.ones(problem.space.options),
    )
    heavy = Certificate(value=1.0, threshold=1.0, slabs=(slab,) * 64)
    assert pack(heavy, problem) == b""
    flags = bytes(48 * 64) + b"\1" * 64
    forged = frame(
        flags + np.ones(64 * problem.space.options).tobytes(),
        slabs=64,
        options=problem.space.options,
    )
    assert len(forged) < MAX_PACKED
    began = time.process_time()
    assert proven(forged, problem) is None
    assert time.process_time() - began < 2
    many = Certificate(value=1.0, threshold=1.0, slabs=(replace(slab, reward=None),) * 2000)
    assert pack(many, problem) == b""


def test_changed_bytes_never_prove_more_than_a_plan_costs():
    draw = random.Random(0)
    good = pack(PACKING)
    head, body = good[:25], zlib.decompress(good[25:])
    for _ in range(300):
        made = bytearray(head + body)
        for _ in range(draw.randint(1, 3)):
            made[draw.randrange(len(made))] = draw.randrange(256)
        bound = proven(bytes(made[:25]) + zlib.compress(bytes(made[25:])), rating=math.inf)
        assert bound is None or bound <= PLAN.rating
