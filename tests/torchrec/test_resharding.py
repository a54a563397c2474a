"""Arguments for TorchRec's reshard(), which are such that it can't fail."""

import random
from itertools import pairwise

import pytest

from fastplan import reshard_arguments
from tests.torchrec.shardings import column_wise, plan_of, row_wise, table_wise

T1 = {"t1": table_wise(20, 2)}


def found(old, new, path="tables"):
    return reshard_arguments(plan_of({"t0": old, **T1}, path), plan_of({"t0": new, **T1}, path))


def ranks_by_step(steps, path="tables"):
    return [step[path][1]["t0"].ranks for step in steps]


def test_only_what_moves_is_an_argument_with_its_mib():
    [step] = found(table_wise(1024, 0), table_wise(1024, 1)).steps
    [(path, (volume, shardings))] = step.items()
    assert (path, [*shardings]) == ("tables", ["t0"])
    assert volume == 1024 * 8 * 4 / 1024**2
    assert found(table_wise(10, 0), table_wise(10, 0)) == ([], {})


def of_kernel(kernel, sharding):
    sharding.compute_kernel = kernel
    return sharding


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (table_wise(9, 0), row_wise(9, 0, 1), "table_wise becomes row_wise"),
        (table_wise(9, 0), of_kernel("dense", table_wise(9, 0)), "kernel fused becomes dense"),
        (row_wise(9, 0, 1), row_wise(9, 1, 0), "row_wise tables can't move"),
        (column_wise(9, 0), column_wise(9, 1, 2), "its shards change"),
        (table_wise(9, 0), table_wise(10, 1), "its shards change"),
        (column_wise(9, 0, 1), column_wise(9, 2, 2), "several shards"),
        (column_wise(9, 0, 1), column_wise(9, 0, 0), "several shards"),
        (
            of_kernel("dense", table_wise(9, 0)),
            of_kernel("dense", table_wise(9, 1)),
            "kernel dense",
        ),
    ],
)
def test_what_can_not_move_in_a_running_job_is_told(old, new, why):
    steps, needs_restart = found(old, new)
    assert steps == []
    assert [*needs_restart] == ["tables.t0"]
    assert why in needs_restart["tables.t0"]


def test_new_tables_and_those_that_are_gone_need_a_restart():
    before, after = (plan_of({name: table_wise(9, 0)}) for name in ("old", "new"))
    assert reshard_arguments(before, after).needs_restart == {
        "tables.old": "the table was removed",
        "tables.new": "the table was added",
    }


def test_a_data_parallel_table_holds_the_others_of_its_module():
    beside = of_kernel("dense", row_wise(20, 0, 1))
    before, after = (plan_of({"t0": table_wise(9, rank), "beside": beside}) for rank in (0, 1))
    assert reshard_arguments(before, after) == (
        [],
        {"tables.t0": "beside of its module has kernel dense"},
    )


def test_a_model_that_is_nothing_but_tables_needs_a_restart():
    steps, needs_restart = found(table_wise(9, 0), table_wise(9, 1), path="")
    assert steps == []
    assert "dense weights" in needs_restart["t0"]


def test_a_shard_that_stays_on_a_gpu_takes_one_step():
    old, new = column_wise(9, 0, 1, device="cuda:0"), column_wise(9, 0, 2, device="cuda:0")
    assert ranks_by_step(found(old, new).steps) == [[0, 2]]


def test_on_cpu_no_rank_ever_sends_to_itself_nor_gets_several_shards():
    drawn = random.Random(0)
    detours = impossible = 0
    for _ in range(300):
        shards = drawn.choice([1, 2, 4])
        old = [drawn.randrange(5) for _ in range(shards)]
        new = drawn.sample(range(5), shards)
        if old == new:
            continue
        steps, needs_restart = found(column_wise(9, *old), column_wise(9, *new))
        impossible += bool(needs_restart)
        if needs_restart:
            assert "gloo" in needs_restart["tables.t0"]
            continue
        way = [old, *ranks_by_step(steps)]
        detours += len(way) == 3
        assert way[-1] == new
        for here, there in pairwise(way):
            assert all(a != b for a, b in zip(here, there, strict=True))
            assert len({*there}) == shards
        for step in steps:
            sharding = step["tables"][1]["t0"]
            placements = [shard.placement.rank() for shard in sharding.sharding_spec.shards]
            assert placements == sharding.ranks
    assert detours
    assert impossible
