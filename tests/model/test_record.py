"""A packed plan comes back as it was, and nothing else is taken for one."""

import random
import zlib

import numpy as np
import pytest

from fastplan.engine.solve import solve
from fastplan.model.plan import NO_LOAD_FACTOR, BadRecord, PlanRecord
from tests.problems import DEFAULT_SEARCH, small_problem

PROBLEM = small_problem()
SOLUTION = solve(PROBLEM, DEFAULT_SEARCH)
RECORD = PlanRecord.of(PROBLEM.space, SOLUTION.options, SOLUTION.ranks, SOLUTION.rating)


def same(a: PlanRecord, b: PlanRecord) -> bool:
    columns = ("table", "sharding_type", "kernel", "ranks")
    return a.rating == b.rating and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in columns
    )


def test_a_record_has_the_solutions_options_and_ranks():
    assert RECORD.table.tolist() == list(range(6))
    assert RECORD.sharding_type.tolist() == PROBLEM.space.option_type[SOLUTION.options].tolist()
    assert RECORD.ranks.tolist() == SOLUTION.ranks.tolist()


def test_packing_and_unpacking_gives_the_same_record_and_the_same_bytes():
    packed = RECORD.pack()
    assert same(PlanRecord.unpack(packed), RECORD)
    assert PlanRecord.unpack(packed).pack() == packed


def test_load_factors_travel_exactly():
    factors = np.array([np.nan, NO_LOAD_FACTOR, 1e-9, 1.0, 0.1, 1 / 3])
    changed = PlanRecord.unpack(
        PlanRecord(
            table=RECORD.table,
            sharding_type=RECORD.sharding_type,
            kernel=RECORD.kernel,
            load_factor=factors,
            ranks=RECORD.ranks,
            rating=RECORD.rating,
        ).pack()
    )
    assert np.array_equal(changed.load_factor, factors, equal_nan=True)


def changed(**columns: object) -> bytes:
    fields = {name: getattr(RECORD, name) for name in RECORD.__slots__}
    return PlanRecord(**{**fields, **columns}).pack()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "short"),
        (b"\x07" + RECORD.pack()[1:], "version 7"),
        (RECORD.pack()[:-1], "size"),
        (RECORD.pack() + b"x", "size"),
        (RECORD.pack()[:17] + zlib.compress(bytes(1 << 20)), "size"),
        (RECORD.pack()[:17] + b"garbage", "read"),
        (b"\x01" + b"\xff" * 16, "too many"),
        (changed(table=np.zeros(6, np.int32)), "every table once"),
        (changed(kernel=np.full(6, 99, np.uint8)), "unknown"),
        (changed(sharding_type=np.full(6, 7, np.uint8)), "unknown"),
        (changed(ranks=RECORD.ranks - 9), "negative"),
        (changed(load_factor=np.full(6, 1.5)), "load factor"),
        (changed(load_factor=np.zeros(6)), "load factor"),
        (changed(rating=float("nan")), "rating"),
        (changed(rating=-1.0), "rating"),
    ],
)
def test_what_is_no_plan_is_refused_with_a_reason(data, complaint):
    with pytest.raises(BadRecord, match=complaint):
        PlanRecord.unpack(data)


def test_damaged_bytes_are_refused_or_unpack_to_a_plan_but_never_do_anything_else():
    packed, rng = RECORD.pack(), random.Random(3)
    for _ in range(3000):
        damaged = bytearray(packed)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            PlanRecord.unpack(bytes(damaged[: rng.randint(0, len(damaged))]))
        except BadRecord:
            continue


def test_a_plan_for_a_thousand_tables_is_a_few_kilobytes():
    rng = random.Random(1)
    record = PlanRecord(
        table=np.arange(1000, dtype=np.int32),
        sharding_type=np.array([rng.choice((1, 3)) for _ in range(1000)], np.uint8),
        kernel=np.ones(1000, np.uint8),
        load_factor=np.full(1000, np.nan),
        ranks=np.array([rng.randrange(1024) for _ in range(1000)], np.int32),
        rating=1.5,
    )
    assert len(record.pack()) < 6000
