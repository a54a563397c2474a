"""The step of a plan: phases, charges and what is hidden, against a slow count in Python."""

import math
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.optimize import Objectives, Optimize, UnsupportedObjective, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve, verify_plan
from fastplan.engine.step import step_bound, step_goal, step_of
from fastplan.model.hardware_costs import FAMILY_OF_KERNEL
from fastplan.model.request import Cluster
from fastplan.model.step import HIDDEN_PHASES, PHASES
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES
from tests.engine.test_hardware_costs import Formulas
from tests.exact import Exact
from tests.hardware import drawn_request, hardware_costs
from tests.model.test_objectives import all_plans
from tests.problems import DEFAULT_SEARCH, small_problem

BY_STEP = Optimize(time_budget=None, move_budget=20_000, objectives=Objectives(minimize="step"))


def drawn(seed, tables=12, room=1 << 34, **hardware):
    rng = random.Random(f"step test {seed}")
    hosts, group = rng.choice(((1, 4), (2, 2), (2, 4), (4, 2)))
    ranks = hosts * group
    made = drawn_request(rng, tables, ranks, group)
    if hardware:
        made = replace(made, hardware=replace(made.hardware, **hardware))
    cluster = Cluster(
        rank_hbm=(room,) * ranks,
        rank_ddr=(1 << 40,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    return made, Problem(estimate(made), cluster)


def random_plan(problem, rng):
    """Any options on any ranks: a count does not ask whether a plan is legal."""
    space, ranks = problem.space, len(problem.cluster.rank_hbm)
    options, placed = [], []
    for t in rng.sample(range(space.tables), space.tables):
        option = rng.randrange(*space.table_option_begin[t : t + 2].tolist())
        options.append(option)
        if SHARDING_TYPES[space.option_type[option]] not in UNIFORM_TYPES:
            runs = slice(*space.option_run_begin[option : option + 2])
            placed += [rng.randrange(ranks) for _ in range(space.run_count[runs].sum())]
    return np.array(options, np.int32), np.array(placed, np.int32)


def shards_of(problem, options, ranks):
    """(table, option, run, rank) of every shard."""
    space, waiting = problem.space, iter(ranks.tolist())
    for option in options.tolist():
        t = int(np.searchsorted(space.table_option_begin, option, side="right")) - 1
        uniform = SHARDING_TYPES[space.option_type[option]] in UNIFORM_TYPES
        own = 0
        for run in range(*space.option_run_begin[option : option + 2]):
            for _ in range(space.run_count[run]):
                yield t, option, run, own if uniform else next(waiting)
                own += 1


def counted(request, problem, options, ranks):
    """By phase, module and type: ms and latency by rank, as the definition says."""
    space, formulas = problem.space, Formulas(request)
    c, backward = formulas.c, not request.cost.perf_inference
    ms = defaultdict(lambda: defaultdict(float))
    charges = defaultdict(dict)
    for t, option, run, rank in shards_of(problem, options, ranks):
        kind = SHARDING_TYPES[space.option_type[option]]
        family = FAMILY_OF_KERNEL[KERNELS[space.option_kernel[option]]]
        table = request.tables[t]
        group = (table.path, kind)
        exchange = formulas.exchanges(kind, table.pooled)
        across = exchange["across"][0]
        none = ("", "")
        lookup = "uvm" if family == "uvm" else "hbm"
        for phase, where, cost, latency, owner in (
            ("input_exchange", none, "input_dist_comms", 2 * exchange["input"][0], group),
            ("prefetch", none, "prefetch_compute", 0.0, family),
            ("forward_lookup", none, "fwd_compute", c[f"{lookup}_forward_latency"], family),
            ("forward_exchange", group, "fwd_comms", exchange["forward"][0] + across, group),
            ("backward_exchange", group, "bwd_comms", exchange["backward"][0] + across, group),
            ("backward_lookup", none, "bwd_compute", c[f"{family}_backward_latency"], family),
        ):
            if phase == "prefetch" and family == "caching":
                latency = c["caching_forward_latency"]
            if phase.startswith("backward") and not backward:
                latency = 0.0
            ms[(phase, *where)][rank] += float(getattr(space, f"run_{cost}")[run])
            charges[(phase, *where, rank)][owner] = latency
    latencies = {key: sum(own.values()) for key, own in charges.items()}
    for (phase, module, kind, rank), latency in latencies.items():
        ms[phase, module, kind][rank] += latency
    return ms, latencies


@pytest.mark.parametrize("seed", range(12))
def test_phases_are_what_a_slow_count_says(seed):
    request, problem = drawn(seed)
    if seed == 3:
        request = replace(request, cost=replace(request.cost, perf_inference=True))
        problem = Problem(estimate(request), problem.cluster)
    rng = random.Random(seed)
    for _ in range(10):
        options, ranks = random_plan(problem, rng)
        step = step_of(problem, options, ranks)
        ms, latencies = counted(request, problem, options, ranks)
        hidden = HIDDEN_PHASES[request.hardware.pipeline]
        assert {(p.name, p.module, p.sharding_type) for p in step.phases} == set(ms)
        for phase in step.phases:
            own = ms[phase.name, phase.module, phase.sharding_type]
            assert phase.ms == pytest.approx(max(own.values()), rel=1e-9)
            assert own[phase.rank] == pytest.approx(phase.ms, rel=1e-9)
            average = sum(own.values()) / len(problem.cluster.rank_hbm)
            assert phase.mean_ms == pytest.approx(average, rel=1e-9)
            key = phase.name, phase.module, phase.sharding_type, phase.rank
            assert phase.latency_ms == pytest.approx(latencies.get(key, 0.0), rel=1e-9)
            assert phase.hidden == (phase.name in hidden)
        counts = sum(max(own.values()) for key, own in ms.items() if key[0] not in hidden)
        assert step.ms == pytest.approx(counts, rel=1e-9)
        assert [p.name for p in step.phases] == sorted(
            (p.name for p in step.phases), key=PHASES.index
        )


@pytest.mark.parametrize("seed", range(6))
def test_cpu_ranks_of_a_host_share_its_link(seed):
    request, made = drawn(seed, tables=6)
    domain, ranks = request.hardware.domain_ranks, len(made.cluster.rank_hbm)
    request = replace(request, cost=replace(request.cost, device_kind="cpu"))
    problem = Problem(estimate(request), made.cluster)
    options, placed = random_plan(problem, random.Random(seed))
    step = step_of(problem, options, placed)
    ms, _ = counted(request, problem, options, placed)
    for phase in step.phases:
        own = ms[phase.name, phase.module, phase.sharding_type]
        shares = "exchange" in phase.name and ranks > domain
        width = domain if shares else 1
        links = [range(i, i + width) for i in range(0, ranks, width)]
        times = [sum(own.get(rank, 0.0) for rank in link) / len(link) for link in links]
        assert phase.ms == pytest.approx(max(times), rel=1e-9)
        assert phase.mean_ms == pytest.approx(sum(times) / len(times), rel=1e-9)
    assert step_bound(problem) <= step.ms


def test_hidden_phases_are_reported_and_do_not_count():
    steps = {}
    for pipeline in HIDDEN_PHASES:
        _, problem = drawn(1, pipeline=pipeline)
        steps[pipeline] = step_of(problem, *random_plan(problem, random.Random(1)))
    by_name = {p.name: p.ms for p in steps["none"].phases}
    whole = steps["none"].ms
    assert by_name["input_exchange"] > 0 and by_name["prefetch"] > 0
    sparse = whole - by_name["input_exchange"]
    assert steps["train_sparse_dist"].ms == pytest.approx(sparse)
    prefetched = sparse - by_name["prefetch"]
    assert steps["train_prefetch_sparse_dist"].ms == pytest.approx(prefetched)
    described = steps["train_prefetch_sparse_dist"].describe()
    assert [p["hidden"] for p in described["phases"]][:3] == [True, True, False]
    assert [p["ms"] for p in described["phases"]] == [p.ms for p in steps["none"].phases]


@pytest.mark.parametrize("seed", range(8))
def test_charges_are_exact_after_many_moves(seed):
    # Scarce memory makes moves that break limits, and tables that change their kernel.
    _, problem = drawn(seed, room=300 << 20)
    goal = step_goal(problem.space)
    start = solve(problem, DEFAULT_SEARCH)
    if not start.found:
        pytest.skip("TorchRec finds no plan")
    limits = {"seconds": math.inf, "moves": 30_000, "seed": seed, "threads": 1}
    plan = {"options": start.options, "ranks": start.ranks}
    result = _native.refine(problem.handle, limits, plan, math.inf, goal.columns())
    assert result["value_before"] == _native.tally(problem.handle, plan, goal.columns())["value"]
    own = {"options": result["options"], "ranks": result["ranks"]}
    assert result["value"] == _native.tally(problem.handle, own, goal.columns())["value"]
    assert result["value"] < result["value_before"]
    step = step_of(problem, result["options"], result["ranks"])
    assert step.ms == result["value"] / goal.scale
    assert verify_plan(problem, result["options"], result["ranks"], math.nan) == ""


def tiny(seed):
    rng = random.Random(f"tiny step {seed}")
    ranks, group = rng.choice(((2, 2), (2, 1), (4, 2)))
    types = tuple(rng.sample(SHARDING_TYPES, 3))
    made = drawn_request(rng, rng.randint(1, 3), ranks, group, types)
    made = replace(made, menus=(tuple(rng.sample(made.menus[0], min(3, len(made.menus[0])))),))
    made = replace(made, hardware=hardware_costs(rng, len(made.tables), group))
    cluster = Cluster(
        rank_hbm=(1 << 36,) * ranks,
        rank_ddr=(1 << 40,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    return Problem(estimate(made), cluster)


def test_no_plan_is_below_the_bound_and_the_best_of_all_is_found():
    best = compared = 0
    for seed in range(60):
        problem = tiny(seed)
        if math.prod(len(own) for own in Exact(problem)._tables) > 500:
            continue
        steps = []
        for plan in all_plans(problem):
            ranks = [
                rank
                for option, own in zip(plan.options, plan.ranks, strict=True)
                if SHARDING_TYPES[problem.space.option_type[option]] not in UNIFORM_TYPES
                for rank in own
            ]
            columns = np.array(plan.options, np.int32), np.array(ranks, np.int32)
            steps.append(step_of(problem, *columns).ms)
        bound = step_bound(problem)
        assert 0 < bound <= min(steps)
        found = optimize(problem, DEFAULT_SEARCH, BY_STEP)
        assert found.objective_bound == bound
        assert found.objective >= min(steps) * (1 - 1e-12)
        best += found.objective <= min(steps) * (1 + 1e-9)
        compared += 1
    assert compared > 20
    assert best == compared


@pytest.mark.parametrize("seed", range(6))
def test_the_result_is_not_worse_by_the_step_than_any_start(seed):
    request, problem = drawn(seed, room=2 << 30)
    stock = solve(
        Problem(estimate(replace(request, hardware=None)), problem.cluster), DEFAULT_SEARCH
    )
    rated = optimize(problem, DEFAULT_SEARCH, replace(BY_STEP, objectives=Objectives()))
    few = replace(BY_STEP, move_budget=10)
    for settings in (few, BY_STEP):
        found = optimize(problem, DEFAULT_SEARCH, settings, also=[stock, rated])
        assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
        step = step_of(problem, found.options, found.ranks)
        assert found.objective == step.ms
        starts = [solve(problem, DEFAULT_SEARCH), stock, rated]
        least = min(step_of(problem, p.options, p.ranks).ms for p in starts if p.found)
        assert found.objective <= found.objective_before <= least


def test_the_same_moves_and_seed_give_the_same_plan():
    _, problem = drawn(2)
    first, second = (optimize(problem, DEFAULT_SEARCH, BY_STEP) for _ in range(2))
    assert first.options.tolist() == second.options.tolist()
    assert first.ranks.tolist() == second.ranks.tolist()
    assert first.objective < first.objective_before


def test_pinned_tables_stay_and_the_step_is_that_of_the_plan():
    _, problem = drawn(5)
    names = [("m", f"t{i}") for i in range(12)]
    objectives = Objectives(minimize="step", pins={"t0": 1}, together=[["t3", "t4"]])
    settings = replace(BY_STEP, objectives=objectives)
    found = optimize(problem, DEFAULT_SEARCH, settings, names=names)
    assert found.found
    step = step_of(problem, found.options, found.ranks)
    assert found.objective == pytest.approx(step.ms, rel=1e-12)
    places = [rank for t, _, _, rank in shards_of(problem, found.options, found.ranks) if t == 0]
    assert set(places) == {1}


def test_the_step_needs_hardware_costs():
    problem = small_problem()
    assert problem.space.step is None
    with pytest.raises(UnsupportedObjective, match="hardware costs"):
        optimize(problem, DEFAULT_SEARCH, BY_STEP)
    with pytest.raises(ValueError, match="hardware costs"):
        step_bound(problem)


def test_the_rating_does_not_limit_the_step():
    assert Objectives(minimize="step").within == math.inf
    assert Objectives(minimize="step").slack == math.inf
    assert replace(Objectives(minimize="step")) == Objectives(minimize="step")
    with pytest.raises(ValueError, match="within"):
        Objectives(minimize="step", within=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_charges", -1),
        ("run_charges", 10**6),
        ("charge_part_channel", -1),
        ("charge_part_channel", 10**6),
        ("run_charge_begin", 5),
        ("charge_part_begin", 5),
    ],
)
def test_charges_that_point_outside_are_refused_by_name(name, value):
    _, problem = drawn(0)
    columns = step_goal(problem.space).columns()
    options, ranks = random_plan(problem, random.Random(0))
    plan = {"options": options, "ranks": ranks}
    _native.tally(problem.handle, plan, columns)
    broken = {**columns, name: np.full_like(columns[name], value)}
    with pytest.raises(TypeError, match=name):
        _native.tally(problem.handle, plan, broken)
    missing = {key: column for key, column in columns.items() if key != name}
    with pytest.raises(TypeError, match=name):
        _native.tally(problem.handle, plan, missing)


@pytest.mark.parametrize("value", [-1, 1 << 61])
def test_amounts_of_charges_are_checked(value):
    _, problem = drawn(0)
    columns = step_goal(problem.space).columns()
    columns["charge_part_amount"] = np.full_like(columns["charge_part_amount"], value)
    options, ranks = random_plan(problem, random.Random(0))
    with pytest.raises(_native.OutOfRange, match="amounts"):
        _native.tally(problem.handle, {"options": options, "ranks": ranks}, columns)
