"""Sweeps and their cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastplan.spec.model import TableSpec
from fastplan.sweep.sweep import MIXED, SweepError, cells, precision_of, variant
from tests.interpreter import python
from tests.sweep.samples import hardware, model, own_topology, sweep


def sizes(**axes: object) -> list[tuple[int, int]]:
    return [(cell.world_size, cell.hosts) for cell in cells(sweep(**axes))]


def test_every_combination_is_a_cell_in_a_fixed_order() -> None:
    asked = sweep(
        models=(model("a"), model("b")),
        skus=(hardware("x"), hardware("y")),
        batch_sizes=(64, 128),
        precisions=("fp32", "bf16"),
    )
    found = cells(asked)
    assert len(found) == len({cell.id for cell in found}) == 2 * 2 * 2 * 2 * 2
    assert found == cells(asked)
    key = [(c.model, c.sku, c.precision, c.batch, c.world_size) for c in found]
    assert key[:3] == [
        ("a", "x", "fp32", 64, 2),
        ("a", "x", "fp32", 64, 4),
        ("a", "x", "fp32", 128, 2),
    ]
    assert key[-1] == ("b", "y", "bf16", 128, 4)


def test_shards_are_disjoint_and_complete() -> None:
    asked = sweep(world_sizes=(1, 2, 3, 4, 5, 6, 7, 8, 16), batch_sizes=(1, 2, 3))
    whole = cells(asked)
    parts = [cells(asked, (i, 4)) for i in range(4)]
    assert sorted(c.id for part in parts for c in part) == sorted(c.id for c in whole)
    assert {len(part) for part in parts} <= {len(whole) // 4, len(whole) // 4 + 1}
    assert cells(asked, (99, 100)) == []


@pytest.mark.parametrize("shard", [(1, 1), (-1, 4), (0, 0), (4, 4)])
def test_impossible_shards_are_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(SweepError, match="`shard` must be"):
        cells(sweep(), shard)


def test_ids_are_the_same_in_every_process() -> None:
    code = (
        "from fastplan.sweep.sweep import cells\n"
        "from tests.sweep.samples import sweep\n"
        "print(*[cell.id for cell in cells(sweep())])"
    )
    assert python(code).split() == [cell.id for cell in cells(sweep())]


def test_ids_tell_apart_what_changes_an_answer_and_nothing_else() -> None:
    first = cells(sweep())[0].id
    for other in (
        sweep(models=(model(rows=999_999),)),
        sweep(skus=(hardware(hbm=1 << 30),)),
        sweep(world_sizes=(8,)),
        sweep(local_world_size=1),
        sweep(batch_sizes=(77,)),
        sweep(precisions=("fp16",)),
    ):
        assert cells(other)[0].id != first
    for same in (
        sweep(models=(replace(model(), source="/elsewhere.yaml"),)),
        sweep(skus=(hardware(price=3.0, about="x", sources={"hbm": "x"}),)),
        sweep(models=(model(topology=own_topology(world_size=99)),)),
        sweep(batch_sizes=(1024,), precisions=("fp32",)),
        sweep(batch_sizes=(2048,), global_batch=True),
    ):
        assert cells(same)[0].id == first


def test_axes_that_are_left_out_are_the_models_own() -> None:
    own = model(topology=own_topology(world_size=16, local_world_size=4))
    [cell] = cells(sweep(models=(own,), skus=(), world_sizes=()))
    assert (cell.sku, cell.world_size, cell.hosts) == ("own", 16, 4)
    assert (cell.batch, cell.precision, cell.hardware) == (1024, "fp32", None)
    spec = variant(own, cell)
    assert spec == own
    [cell] = cells(sweep(skus=(), world_sizes=(8,)))
    assert cell.sku == "torchrec"


def test_a_model_without_a_size_needs_one_from_the_sweep() -> None:
    with pytest.raises(SweepError, match=r"small has no `topology\.world_size`: give"):
        cells(sweep(world_sizes=()))


def test_hosts_count_the_ranks_of_their_sku() -> None:
    four = hardware("four", ranks_per_host=4)
    assert sizes(world_sizes=(), hosts=(1, 2), skus=(hardware(), four)) == [
        (8, 1),
        (16, 2),
        (4, 1),
        (8, 2),
    ]
    assert sizes(world_sizes=(), hosts=(3,), local_world_size=2) == [(6, 3)]


def test_hosts_with_too_many_ranks_are_refused() -> None:
    with pytest.raises(SweepError, match=r"1,000,000, which are 8,000,000 ranks of 8 per host: at"):
        cells(sweep(world_sizes=(), hosts=(1_000_000,)))


def test_a_small_cluster_is_one_host() -> None:
    assert sizes(world_sizes=(1, 2, 8, 16)) == [(1, 1), (2, 1), (8, 1), (16, 2)]
    assert sizes(world_sizes=(2, 8), local_world_size=4) == [(2, 1), (8, 2)]


def test_a_global_batch_is_shared_by_the_ranks() -> None:
    found = cells(sweep(batch_sizes=(4096,), global_batch=True))
    assert [(c.batch, c.batch_size) for c in found] == [(4096, 2048), (4096, 1024)]
    with pytest.raises(SweepError, match="4097 can't be divided by 2 ranks"):
        cells(sweep(batch_sizes=(4097,), global_batch=True))


def test_repeated_values_are_one_cell() -> None:
    assert len(cells(sweep(world_sizes=(2, 2, 4), precisions=("fp32", "fp32")))) == 2


def test_a_variant_has_the_cells_cluster_batch_and_precision() -> None:
    own = model(topology=own_topology(world_size=16, rank_hbm=(1,) * 16))
    [cell] = cells(sweep(models=(own,), world_sizes=(8,), batch_sizes=(64,), precisions=("bf16",)))
    spec = variant(own, cell)
    assert spec.batch_size == 64
    assert {table.dtype for table in spec.tables} == {"bf16"}
    assert spec.topology.hardware is not None
    assert (spec.topology.hardware.name, spec.topology.world_size) == ("h100", 8)
    assert spec.topology.rank_hbm is None


def test_tables_of_whole_numbers_keep_their_type() -> None:
    tables = (*model().tables, TableSpec(name="q", rows=10, dim=8, dtype="int8"))
    [cell] = cells(sweep(models=(model(tables=tables),), world_sizes=(2,), precisions=("fp16",)))
    assert [t.dtype for t in variant(model(tables=tables), cell).tables] == ["fp16", "fp16", "int8"]


def test_the_precision_of_a_model_is_named() -> None:
    def of(*dtypes: str) -> str:
        tables = [TableSpec(name=d, rows=1, dim=1, dtype=d) for d in dtypes]
        return precision_of(model(tables=tuple(tables)))

    assert of("fp16", "fp16") == "fp16"
    assert of("fp16", "int8") == "fp16"
    assert of("int8") == "int8"
    assert of("fp32", "bf16") == MIXED
    mixed = tuple(TableSpec(name=d, rows=1, dim=1, dtype=d) for d in ("fp32", "bf16"))
    [cell] = cells(sweep(models=(model(tables=mixed),), world_sizes=(2,)))
    assert cell.precision == MIXED
    assert variant(model(tables=mixed), cell).tables == mixed


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"models": ()}, "`models` must have at least one model"),
        ({"hosts": (1,)}, "`hosts` and `world_sizes` both"),
        ({"world_sizes": (0,)}, "`world_sizes` must be at least 1"),
        ({"batch_sizes": (-1,)}, "`batch_sizes` must be at least 1"),
        ({"local_world_size": 0}, "`local_world_size` must be at least 1"),
        ({"precisions": ("int8",)}, "`precisions` must be of fp32, fp16, bf16, not 'int8'"),
        ({"global_batch": True}, "`global_batch` needs `batch_sizes`"),
        ({"models": (model(), model())}, "`models` has two that are called 'small'"),
        ({"skus": (hardware(), hardware())}, "`skus` has two that are called 'h100'"),
    ],
)
def test_impossible_sweeps_are_refused(axes: dict[str, object], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        sweep(**axes)
