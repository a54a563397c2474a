"""Questions to a sweep."""

from __future__ import annotations

import pytest

from fastplan.sweep.queries import MissingPrice, UnknownValue, cheapest, savings, smallest_cluster
from fastplan.sweep.rows import Row, SweepResult
from tests.sweep.samples import failure, row, unfit


def result(*rows: Row, **prices: float) -> SweepResult:
    return SweepResult(rows=rows, prices=prices)


SIZES = result(
    row(world_size=64),
    unfit(world_size=8),
    row(world_size=16),
    unfit(world_size=8, sku="a100"),
    unfit(world_size=16, sku="a100", headroom_bytes=-5),
    row(world_size=8, precision="fp16"),
)


def test_the_smallest_cluster_that_fits_is_found_for_each_group() -> None:
    found = {(a.sku, a.precision): a for a in smallest_cluster(SIZES)}
    assert len(found) == 3
    h100 = found["h100", "fp32"]
    assert h100.row is not None and h100.row.world_size == 16
    assert h100.largest.world_size == 64
    assert found["a100", "fp32"].row is None
    assert found["a100", "fp32"].largest.headroom_bytes == -5
    fp16 = found["h100", "fp16"].row
    assert fp16 is not None and fp16.world_size == 8


def test_groups_can_be_chosen() -> None:
    assert [a.sku for a in smallest_cluster(SIZES, sku="a100")] == ["a100"]
    assert [a.precision for a in smallest_cluster(SIZES, precision="fp16")] == ["fp16"]
    assert [a.sku for a in smallest_cluster(SIZES, sku="A100")] == ["a100"]
    with pytest.raises(UnknownValue, match=r"`model` must be one of .*, m, not 'none'"):
        smallest_cluster(SIZES, model="none")
    with pytest.raises(UnknownValue, match=r"`sku` must be one of .*a100.*, not 'h1000'"):
        smallest_cluster(SIZES, sku="h1000")
    assert smallest_cluster(SIZES, batch=512, model="m", sku="h100", precision="fp32")
    assert smallest_cluster(result()) == []


def test_sizes_without_an_answer_are_named() -> None:
    [answer] = smallest_cluster(
        result(
            unfit(world_size=8), failure(world_size=12), row(world_size=16), failure(world_size=24)
        )
    )
    assert answer.unknown == (12,)
    [answer] = smallest_cluster(result(failure(world_size=12), unfit(world_size=8)))
    assert (answer.row, answer.unknown) == (None, (12,))


OFFERS = result(
    row(world_size=8, rating=20.0),
    row(world_size=16, rating=9.0),
    row(sku="a100", world_size=16, rating=9.5),
    row(sku="a100", world_size=32, rating=5.0),
    unfit(sku="a100", world_size=8),
    failure(sku="a100", world_size=4),
    h100=3.0,
    a100=2.0,
)


def test_the_cheapest_that_is_fast_enough_is_found() -> None:
    [answer] = cheapest(OFFERS, rating=10.0)
    assert answer.row is not None
    assert (answer.row.sku, answer.row.world_size) == ("a100", 16)
    assert (answer.price, answer.cost) == (2.0, 32.0)
    [answer] = cheapest(OFFERS, rating=9.0)
    assert answer.row is not None and answer.row.sku == "h100"
    [answer] = cheapest(OFFERS, rating=25.0)
    assert answer.row is not None and (answer.row.world_size, answer.cost) == (8, 24.0)


def test_given_prices_come_before_those_of_skus() -> None:
    [answer] = cheapest(OFFERS, rating=10.0, prices={"h100": 0.5})
    assert answer.row is not None and answer.row.sku == "h100"
    assert answer.cost == 8.0


def test_among_equal_costs_the_faster_one_wins() -> None:
    [answer] = cheapest(OFFERS, rating=30.0, prices={"h100": 0.0, "a100": 0.0})
    assert answer.row is not None and answer.row.rating == 5.0


def test_if_nothing_is_fast_enough_the_best_is_named() -> None:
    [answer] = cheapest(OFFERS, rating=1.0)
    assert (answer.row, answer.price, answer.cost) == (None, None, None)
    assert answer.best is not None and answer.best.rating == 5.0
    [answer] = cheapest(result(unfit()), rating=1.0)
    assert (answer.row, answer.best) == (None, None)


def test_a_price_that_is_needed_and_missing_is_an_error() -> None:
    unknown = result(*OFFERS.rows, a100=2.0)
    with pytest.raises(MissingPrice, match=r"price of h100 is not known.*--price h100=2.5"):
        cheapest(unknown, rating=10.0)
    with pytest.raises(MissingPrice, match="a100 and h100"):
        cheapest(result(*OFFERS.rows), rating=10.0)
    [answer] = cheapest(unknown, rating=8.0)  # no h100 is that fast
    assert answer.row is not None and answer.row.sku == "a100"


def test_precisions_are_compared_where_all_of_them_fit() -> None:
    half = {"precision": "fp16", "hbm_bytes": 4 << 30, "rating": 7.0}
    found = savings(
        result(
            unfit(world_size=8),
            row(world_size=16),
            row(world_size=8, **half),
            row(world_size=16, **half, ddr_bytes=1 << 30),
        )
    )
    assert [(s.precision, s.smallest) for s in found] == [("fp32", 16), ("fp16", 8)]
    assert {s.against for s in found} == {"fp32"}
    assert (found[0].memory, found[0].rating) == (1.0, 1.0)
    assert found[1].row is not None and found[1].row.world_size == 16
    assert found[1].memory == pytest.approx(5 / 8)
    assert found[1].rating == pytest.approx(0.7)


def test_without_a_common_size_only_the_smallest_ones_are_told() -> None:
    found = savings(result(unfit(world_size=8), row(world_size=8, precision="bf16")))
    assert [(s.precision, s.smallest, s.row, s.memory, s.rating) for s in found] == [
        ("fp32", None, None, None, None),
        ("bf16", 8, None, None, None),
    ]


def test_one_precision_saves_nothing_and_others_are_compared_with_the_first() -> None:
    assert savings(result(row(), row(world_size=16))) == []
    assert savings(result(row(), row(sku="a100", precision="fp16"))) == []
    found = savings(result(row(precision="bf16"), row(precision="fp16", rating=5.0)))
    assert [(s.against, s.rating) for s in found] == [("bf16", 1.0), ("bf16", 0.5)]


def test_plans_with_hardware_costs_are_compared_by_their_step() -> None:
    rows = (row(sku="h100", rating=1.0, step=9.0), row(sku="a100", rating=9.0, step=1.0))
    answer = cheapest(result(*rows, h100=1.0, a100=50.0), rating=2.0)[0]
    assert answer.row is not None
    assert answer.row.sku == "a100"
