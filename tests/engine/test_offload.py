"""Offload plans against every plan of small instances, by code of its own."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.cache_sizes import LARGEST, sized_space, sizes_of
from fastplan.engine.link_bytes import counting_link_bytes
from fastplan.engine.offload import offload
from fastplan.engine.optimize import Objectives, Optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from fastplan.model.hardware_costs import FAMILY_OF_KERNEL, KERNEL_FAMILIES
from fastplan.model.ids import Curve
from fastplan.model.request import Cluster, Partitioner, Proposer, Search
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from tests.hardware import drawn_request
from tests.ids import curves_of, drawn_statistics

RANKS = 2
SEARCH = Search(proposers=(Proposer(kind="greedy"),), partitioner=Partitioner())
SETTINGS = Optimize(
    time_budget=None, move_budget=30_000, objectives=Objectives(minimize="step"), offload=True
)
PARTS = ("input_dist_comms", "prefetch_compute", "fwd_compute", "bwd_compute")


def instance(seed):
    """Three tables of one module on two ranks, with memory for a part of them."""
    rng = random.Random(f"offload {seed}")
    made = drawn_request(rng, 3, RANKS, RANKS, ("table_wise", "row_wise"))
    tables = tuple(
        t._replace(rows=int(10 ** rng.uniform(4.5, 6)), path="m", pooled=True, miss_rate=math.nan)
        for t in made.tables
    )
    tables = tuple(t._replace(bytes=t.rows * t.dim * t.element_size) for t in tables)
    ids = tuple(curves_of(drawn_statistics(rng, t.rows)) for t in tables)
    made = replace(made, tables=tables, hardware=replace(made.hardware, ids=ids, pipeline="none"))
    room = sum(t.bytes for t in tables) // RANKS
    overhead = 4 * sum(int(t.perf_inputs * 8 + t.perf_outputs * t.dim * 4) for t in tables)
    cluster = Cluster(
        rank_hbm=(int(room * rng.choice((0.1, 0.3, 0.6))) + overhead,) * RANKS,
        rank_ddr=(16 * room,) * RANKS,
        rank_ssd=(0,) * RANKS,
        local_world_size=RANKS,
        group_size=RANKS,
    )
    return made, cluster


def placements(space, option):
    """Ranks of the shards of an option, run by run: rank and run."""
    begin, end = space.option_run_begin[option : option + 2]
    runs = [run for run in range(begin, end) for _ in range(space.run_count[run])]
    if SHARDING_TYPES[space.option_type[option]] == "row_wise":
        return [list(zip(range(RANKS), runs, strict=True))]
    return [
        list(zip(ranks, runs, strict=True))
        for ranks in itertools.product(range(RANKS), repeat=len(runs))
    ]


def best_step(space, cluster):
    """The least step of all plans: sum over phases of max over ranks of shards and latencies."""
    model = space.step
    tables = []
    for t in range(space.tables):
        own = []
        for option in range(*space.table_option_begin[t : t + 2]):
            kind = int(space.option_type[option])
            family = KERNEL_FAMILIES.index(FAMILY_OF_KERNEL[KERNELS[space.option_kernel[option]]])
            for placed in placements(space, option):
                time = np.zeros((4, RANKS))
                wire = np.zeros((2, RANKS))
                memory = np.zeros((2, RANKS), np.int64)
                for rank, run in placed:
                    time[:, rank] += [getattr(space, f"run_{part}")[run] for part in PARTS]
                    wire[:, rank] += space.run_fwd_comms[run], space.run_bwd_comms[run]
                    memory[:, rank] += space.run_hbm[run], space.run_ddr[run]
                where = np.zeros(RANKS, bool)
                where[[rank for rank, _ in placed]] = True
                own.append((time, wire, memory, kind, family, where))
        tables.append(own)
    room = np.array([cluster.rank_hbm, cluster.rank_ddr])
    best = math.inf
    for plan in itertools.product(*tables):
        if (sum(each[2] for each in plan) > room).any():
            continue
        time = sum(each[0] for each in plan)
        step = 0.0
        for kind in {each[3] for each in plan}:
            some = [each for each in plan if each[3] == kind]
            where = np.logical_or.reduce([each[5] for each in some])
            latency = model.exchanges[kind][1]
            time[0] += where * 2 * latency.input
            ahead = sum(each[1][0] for each in some)
            back = sum(each[1][1] for each in some)
            step += (ahead + where * (latency.forward + latency.forward_across)).max()
            step += (back + where * (latency.backward + latency.backward_across)).max()
        for family in {each[4] for each in plan}:
            where = np.logical_or.reduce([each[5] for each in plan if each[4] == family])
            latency = model.families[family]
            time[1] += where * latency.prefetch
            time[2] += where * latency.forward
            time[3] += where * latency.backward
        best = min(best, step + time.max(axis=1).sum())
    return best


def coarse(curve, rows):
    return tuple(sorted({*sizes_of(curve, rows)[::3], LARGEST}))


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_with_the_offered_sizes_has_a_shorter_step(seed, monkeypatch):
    monkeypatch.setattr("fastplan.engine.cache_sizes.sizes_of", coarse)
    made, cluster = instance(seed)
    sized = sized_space(made)
    own = Problem(estimate(made), cluster)
    found = offload(made, cluster, SETTINGS, own=own, plans=[solve(own, SEARCH)], ratings={})
    best = best_step(sized.space, cluster)
    assert found.result.found == math.isfinite(best)
    if found.result.found:
        assert found.wrong == ""
        assert found.result.objective <= best * (1 + 1e-9)
        assert 0 < found.result.objective_bound <= found.result.objective


def host_bytes(space, option):
    """Bytes of an option over host links, from the costs of a link that takes 1 ms per byte."""
    begin, end = space.option_run_begin[option : option + 2]
    return sum(
        int(space.run_count[run])
        * (
            space.run_fwd_compute[run]
            + space.run_prefetch_compute[run]
            + space.run_bwd_compute[run]
        )
        for run in range(begin, end)
    )


def fewest_bytes(made, cluster):
    """The fewest bytes over host links of all plans with the offered sizes."""
    sized = sized_space(counting_link_bytes(made))
    space = sized.space
    room = np.array([cluster.rank_hbm, cluster.rank_ddr])
    tables = []
    for t in range(space.tables):
        own = []
        for option in range(*space.table_option_begin[t : t + 2]):
            size = host_bytes(space, option)
            for placed in placements(space, option):
                memory = np.zeros((2, RANKS), np.int64)
                for rank, run in placed:
                    memory[:, rank] += space.run_hbm[run], space.run_ddr[run]
                own.append((size, memory))
        tables.append(own)
    plans = itertools.product(*tables)
    fitting = (p for p in plans if (sum(each[1] for each in p) <= room).all())
    return min((sum(each[0] for each in p) for p in fitting), default=math.inf)


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_with_the_offered_sizes_moves_fewer_bytes(seed, monkeypatch):
    monkeypatch.setattr("fastplan.engine.cache_sizes.sizes_of", coarse)
    made, cluster = instance(seed)
    own = Problem(estimate(made), cluster)
    settings = replace(SETTINGS, objectives=Objectives(minimize="link_bytes"))
    found = offload(made, cluster, settings, own=own, plans=[solve(own, SEARCH)], ratings={})
    best = fewest_bytes(made, cluster)
    assert found.result.found == math.isfinite(best)
    if found.result.found:
        assert found.wrong == ""
        # A step counts beside the bytes, but little.
        assert found.result.objective <= best * 1.01
        assert found.result.objective_bound <= found.result.objective


def test_bytes_are_those_of_the_rows_that_cross_the_link():
    made, _ = instance(3)
    space = estimate(counting_link_bytes(made))
    hardware = made.hardware
    for t, table in enumerate(made.tables):
        row = math.ceil(table.dim * table.element_size / 32) * 32
        ids = table.perf_inputs * RANKS
        curves = hardware.ids[t]
        distinct = min(ids * curves.unique.at(ids), table.rows)
        misses = min(ids * curves.misses.at(table.cache_ratio * table.rows), distinct)
        states = 2 * distinct * hardware.states[t] * row
        expected = {
            "fused": 0.0,
            "fused_uvm": 3 * distinct * row + states,
            "fused_uvm_caching": 2 * misses * row + states,
        }
        for option in range(*space.table_option_begin[t : t + 2]):
            kernel = KERNELS[space.option_kernel[option]]
            if kernel in expected and SHARDING_TYPES[space.option_type[option]] == "table_wise":
                size = host_bytes(space, option)
                assert size == pytest.approx(expected[kernel])


def test_sizes_are_corners_of_the_hull_below_a_load_factor_of_1():
    falling = Curve((10.0, 100.0, 1000.0), (0.9, 0.1, 0.05))
    sizes = sizes_of(falling, 1000)
    assert sizes[-1] == pytest.approx(LARGEST)
    assert list(sizes) == sorted(sizes)
    flat = Curve((1.0,), (0.4,))
    assert len(sizes_of(flat, 10**6)) == 1  # a constant share is worth no memory
    assert sizes_of(None, 20) == (LARGEST,)


def test_a_space_with_sizes_has_the_options_of_the_request_first():
    made, _ = instance(1)
    own, sized = estimate(made), sized_space(made)
    for t in range(own.tables):
        a, b = own.table_option_begin[t : t + 2]
        numbers = sized.own_options(own, np.arange(a, b, dtype=np.int32))
        assert np.isnan(sized.load_factor[numbers]).all()
        assert (sized.space.option_type[numbers] == own.option_type[a:b]).all()
    assert len({*sized.space.option_key.tolist()}) == sized.space.options
