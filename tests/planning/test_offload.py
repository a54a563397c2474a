"""Offload plans from specs: sizes, keys, files, cache, and what is refused."""

import json

import numpy as np
import pytest

from fastplan.engine.layout import narrowed
from fastplan.engine.optimize import Objectives, Optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, verify_plan
from fastplan.model.job import CannotPlan
from fastplan.model.objectives import ConstraintError
from fastplan.model.vocabulary import KERNEL_INDEX
from fastplan.planning.specs import plan_spec
from fastplan.plans.file import read_plan, write_plan
from fastplan.report.analysis import analyse
from fastplan.spec.model import ModelSpec, ReservationSpec, TableSpec, replace
from fastplan.spec.read import on_cluster, with_statistics
from tests.ids import skewed_statistics

MOVES = Optimize(time_budget=None, move_budget=3000, offload=True)
NAMES = [f"t{i}" for i in range(8)]
STATISTICS = {name: skewed_statistics(200_000) for name in NAMES[:6]}
CACHED = KERNEL_INDEX["fused_uvm_caching"]


def spec(hbm=60 << 20, costs="hardware", ranks=4, **fields):
    """400 MB of tables; `hbm` bytes on each rank."""
    tables = tuple(
        TableSpec(name=name, rows=200_000, dim=64, pooling=(20.0,), optimizer="rowwise_adagrad")
        for name in NAMES
    )
    model = ModelSpec(
        name="m",
        tables=tables,
        batch_size=1024,
        costs=costs,
        reservation=ReservationSpec(policy="absolute"),
        **fields,
    )
    model = on_cluster(model, sku="h100", world_size=ranks)
    topology = replace(model.topology, rank_hbm=(hbm,) * ranks)
    return with_statistics(replace(model, topology=topology), STATISTICS)


def test_a_plan_has_sizes_that_fit_and_is_no_slower_than_one_without():
    result = plan_spec(spec(), optimize=MOVES)
    plain = plan_spec(spec(), optimize=replace(MOVES, offload=False))
    assert result.not_optimized is None
    assert result.step.ms <= plain.step.ms
    record = result.record
    sized = ~np.isnan(record.load_factor)
    assert sized.any()
    assert (record.kernel[sized] == CACHED).all()
    space = estimate(narrowed(result.job.request, record))
    numbers = np.arange(len(NAMES), dtype=np.int32)
    problem = Problem(space, result.job.cluster)
    assert verify_plan(problem, numbers, record.ranks, record.rating) == ""
    assert result.optimized.objective == pytest.approx(result.step.ms)
    assert result.optimized.objective_bound <= result.step.ms


def test_a_plan_for_few_bytes_moves_no_more_than_one_for_the_step():
    fewest = replace(MOVES, objectives=Objectives(minimize="link_bytes"))
    few, short = (plan_spec(spec(), optimize=each) for each in (fewest, MOVES))
    assert few.optimized.objective == few.optimized.link_bytes
    assert few.optimized.objective_bound <= few.optimized.link_bytes
    assert 0 < few.optimized.link_bytes <= short.optimized.link_bytes
    assert short.step.ms <= few.step.ms
    space = estimate(narrowed(few.job.request, few.record))
    numbers = np.arange(len(NAMES), dtype=np.int32)
    problem = Problem(space, few.job.cluster)
    assert verify_plan(problem, numbers, few.record.ranks, few.record.rating) == ""


def test_more_memory_gives_a_shorter_step():
    steps = [plan_spec(spec(mb << 20), optimize=MOVES).step.ms for mb in (40, 60, 200)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


def test_the_plan_file_has_cache_params_and_gives_the_plan_back(tmp_path):
    result = plan_spec(spec(), optimize=MOVES)
    write_plan(result.plan(), tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    np.testing.assert_array_equal(again.basis.record.load_factor, result.record.load_factor)
    assert analyse(again).step == result.step
    by_name = {table.name: table for table in again.layout.tables}
    for number, factor in zip(
        result.record.table.tolist(), result.record.load_factor.tolist(), strict=True
    ):
        own = by_name[NAMES[number]].settings.get("cache_params")
        assert own == (None if np.isnan(factor) else {"load_factor": factor})


def test_a_cached_plan_is_the_same_and_verified(tmp_path):
    first, second = (plan_spec(spec(), cache=tmp_path, optimize=MOVES) for _ in range(2))
    assert (first.cache.status, second.cache.status) == ("miss", "hit")
    assert second.step == first.step
    assert second.record.pack() == first.record.pack()


def test_offload_has_a_key_of_its_own_and_other_keys_do_not_change():
    plain = replace(MOVES, offload=False)
    keys = [plan_spec(spec(), optimize=each).key for each in (MOVES, plain)]
    settings = [json.loads(key.request)["context"]["optimize"] for key in keys]
    assert settings[0] == {**settings[1], "offload": True}


def test_host_memory_is_respected():
    tight = spec()
    ddr = 140 << 20  # of 205 MB by rank that all tables on the host would take
    tight = replace(tight, topology=replace(tight.topology, rank_ddr=(ddr,) * 4))
    result = plan_spec(tight, optimize=MOVES)
    if result.placement is not None:
        space = estimate(narrowed(result.job.request, result.record))
        problem = Problem(space, result.job.cluster)
        numbers = np.arange(len(NAMES), dtype=np.int32)
        assert verify_plan(problem, numbers, result.record.ranks, float("nan")) == ""
    ample = plan_spec(spec(), optimize=MOVES)
    assert result.placement is None or result.step.ms >= ample.step.ms * 0.999


def test_allowed_kernels_are_respected():
    model = spec(200 << 20)
    tables = tuple(replace(table, compute_kernels=("fused",)) for table in model.tables[:3])
    model = replace(model, tables=tables + model.tables[3:])
    record = plan_spec(model, optimize=MOVES).record
    fused = {NAMES[n] for n, kernel in zip(record.table, record.kernel, strict=True) if kernel == 1}
    assert fused >= set(NAMES[:3])


def test_no_memory_at_all_is_a_result_without_a_plan():
    assert plan_spec(spec(1 << 10), optimize=MOVES).placement is None


def test_what_offload_excludes_is_refused():
    with pytest.raises(ConstraintError, match="`offload` needs hardware costs"):
        plan_spec(spec(costs="torchrec"), optimize=MOVES)
    with pytest.raises(ValueError, match="only with `offload`"):
        Optimize(objectives=Objectives(minimize="link_bytes"))
    with pytest.raises(ValueError, match="does not apply to the link_bytes"):
        Objectives(minimize="link_bytes", within=0.1)
    with pytest.raises(ValueError, match="minimises the step"):
        Optimize(offload=True, objectives=Objectives(minimize="memory"))
    with pytest.raises(ValueError, match="without `pins`"):
        Optimize(offload=True, objectives=Objectives(pins={"t0": 1}))
    previous = plan_spec(spec()).plan() if plan_spec(spec()).placement else None
    if previous is not None:
        with pytest.raises(CannotPlan, match="offload"):
            plan_spec(spec(), optimize=MOVES, previous=previous)
