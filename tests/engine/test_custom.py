"""Functions that the core calls by address: what they are shown, and what it makes of answers."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from fastplan.costs.loops import RATING_DTYPE
from fastplan.engine import _native
from fastplan.engine.optimize import Optimize, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, placer, propose, solve, verify
from fastplan.model.request import Pricing, Search
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from tests.problems import ALL_TYPES, random_problem, request, table

SIGNATURE = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)


class Failed(Exception):
    """What these functions' failures are told with."""


class Called:
    """A Python function at an address: slow, but without a compiler."""

    name = "tests:called"

    def __init__(self, function):
        self._pointer = SIGNATURE(function)

    def address(self):
        return ctypes.cast(self._pointer, ctypes.c_void_p).value

    def fingerprint(self):
        return "constant"

    def failure(self, facts, table=None):
        return Failed(facts, table)


def records(address, count, dtype):
    """The array at an address."""
    size = count * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


def cost(change, *, priced=None):
    """A cost that changes (shards, costs) at once; and maybe says that it raised."""

    def call(shards, costs, count):
        change(
            records(shards, count, _native.SHARD_DTYPE), records(costs, count, _native.COST_DTYPE)
        )
        return count if priced is None else priced

    return Called(call)


def objective(rate, *, done=1):
    def call(ranks, count, rating):
        found = rate(records(ranks, count, _native.RANK_DTYPE))
        records(rating, 1, RATING_DTYPE)["rating"] = found
        return done

    return Called(call)


def priced(made, function):
    return replace(made, pricing=Pricing(function=function, batch_size=512))


def small():
    tables = [table("a", 1000, 256, pooling=4.0), table("b", 70, 32)._replace(weighted=True)]
    return request(tables, 8, 4, ALL_TYPES)


def test_a_cost_sees_every_run_with_the_facts_of_its_table_and_option():
    seen = []
    made = small()
    space = estimate(priced(made, cost(lambda shards, costs: seen.append(shards.copy()))))
    shards = np.concatenate(seen)
    assert len(seen) == 2 and len(shards) == len(space.run_count)
    assert shards["rows"].tolist() == space.run_rows.tolist()
    assert shards["dim"].tolist() == space.run_cols.tolist()
    assert shards["hbm"].tolist() == space.run_hbm.tolist()
    options = np.repeat(np.arange(space.options), np.diff(space.option_run_begin))
    assert shards["sharding_type"].tolist() == space.option_type[options].tolist()
    assert shards["kernel"].tolist() == space.option_kernel[options].tolist()
    counts = np.add.reduceat(space.run_count, space.option_run_begin[:-1])
    assert shards["shards"].tolist() == counts[options].tolist()
    first = shards[0]
    assert (first["table_rows"], first["table_dim"], first["element_size"]) == (1000, 256, 4)
    assert (first["batch"], first["pooling"], first["inputs"]) == (512, 4.0, 2048.0)
    assert (first["world_size"], first["local_world_size"], first["group_size"]) == (8, 4, 4)
    assert first["bandwidths"]["memory"] == made.menus[0][0].bandwidth
    assert first["bandwidths"]["across_all_to_all"] == made.cost.bw_across_all_to_all
    assert first["model"]["fwd"].tolist() == list(made.coefficients[0].fwd)
    assert shards["weighted"].tolist() == [False] * len(seen[0]) + [True] * len(seen[1])


def test_costs_are_torchrecs_until_a_function_sets_them():
    made = small()
    untouched = estimate(priced(made, cost(lambda shards, costs: None)))
    stock = estimate(made)
    for part in _native.COST_DTYPE.names:
        assert (
            getattr(untouched, f"run_{part}").tobytes() == getattr(stock, f"run_{part}").tobytes()
        )

    def change(shards, costs):
        costs["bwd_comms"] = shards["stock"]["bwd_comms"] + shards["rows"]

    own = estimate(priced(made, cost(change)))
    assert np.array_equal(own.run_bwd_comms, stock.run_bwd_comms + stock.run_rows)
    assert own.run_fwd_comms.tobytes() == stock.run_fwd_comms.tobytes()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1e-300])
@pytest.mark.parametrize("part", _native.COST_DTYPE.names)
def test_what_is_no_cost_fails_with_table_and_shard(part, wrong):
    row_wise = SHARDING_TYPE_INDEX["row_wise"]

    def change(shards, costs):
        where = (shards["table_rows"] == 70) & (shards["sharding_type"] == row_wise)
        costs[part][np.flatnonzero(where)[-1:]] = wrong

    with pytest.raises(Failed) as caught:
        estimate(priced(small(), cost(change)))
    facts, name = caught.value.args
    assert (name, facts["table"], facts["raised"]) == ("b", 1, False)
    # Row-wise, 70 rows on 8 ranks are 7 blocks of 9 and one of 7.
    assert (facts["shard"], facts["record"]["rows"][0]) == (7, 7)
    assert np.array_equal(facts["cost"][part][0], wrong, equal_nan=True)


def test_a_function_that_raised_fails_with_the_shard_it_was_at():
    with pytest.raises(Failed) as caught:
        estimate(priced(small(), cost(lambda shards, costs: None, priced=0)))
    facts, name = caught.value.args
    assert (name, facts["table"], facts["shard"], facts["raised"]) == ("a", 0, 0, True)
    assert facts["record"]["kernel"][0] in KERNEL_INDEX.values()


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_rank_as_an_objective_is_the_stock_search(seed):
    problem, search = random_problem(seed)
    own = replace(search, objective=objective(lambda ranks: ranks["total"].max()))
    stock, found = solve(problem, search, exhaustive=True), solve(problem, own)
    assert found.exhaustive
    assert (stock.found, stock.rating.hex()) == (found.found, found.rating.hex())
    assert np.array_equal(stock.options, found.options)
    assert np.array_equal(stock.ranks, found.ranks)
    assert repr(stock.reports) == repr(found.reports)  # NaN is no rating
    if found.found:
        assert verify(problem, found, own.objective) == ""


def solvable(seed=0):
    """A problem with a plan."""
    while True:
        problem, search = random_problem(seed)
        if solve(problem, search).found:
            return problem, search
        seed += 1


def with_objective(search, rate, **settings) -> Search:
    return replace(search, objective=objective(rate, **settings))


def test_an_objective_decides_among_plans():
    problem, search = solvable()
    seen = []

    def rate(ranks):
        seen.append(float(ranks["hbm"].max()))
        return seen[-1]

    own = with_objective(search, rate)
    found = solve(problem, own)
    assert found.rating == min(seen)
    assert found.plans == len(seen)
    again = placer(problem, own.partitioner, own.objective).place(found.options.tolist())
    assert again == (found.ranks.tolist(), found.rating)
    assert verify(problem, found, own.objective) == ""
    assert "the rating is" in verify(problem, replace(found, rating=1.5), own.objective)


def test_the_first_of_equal_plans_wins():
    problem, search = solvable()
    found = solve(problem, with_objective(search, lambda ranks: 1.0))
    place = placer(problem, search.partitioner).place
    proposals = (
        row.tolist()
        for proposer in search.proposers
        for row in propose(problem, proposer, 0, 1 << 20)["options"]
    )
    assert found.options.tolist() == next(row for row in proposals if place(row) is not None)


def test_ranks_carry_what_the_plan_puts_on_them():
    problem, search = solvable()
    shown = []
    found = solve(problem, with_objective(search, lambda ranks: shown.append(ranks.copy()) or 1.0))
    space, first = problem.space, shown[0]
    runs = np.concatenate(
        [np.arange(*space.option_run_begin[o : o + 2]) for o in found.options.tolist()]
    )
    for part in (*_native.COST_DTYPE.names, "hbm", "ddr", "ssd"):
        total = float((space.run_count[runs] * getattr(space, f"run_{part}")[runs]).sum())
        assert first[part].sum() == pytest.approx(total, rel=1e-9)
    hosts = np.arange(len(first)) // problem.cluster.local_world_size
    assert first["host"].tolist() == hosts.tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0, 2.0**63])
def test_what_is_no_rating_fails(wrong):
    problem, search = solvable()
    with pytest.raises(Failed) as caught:
        solve(problem, with_objective(search, lambda ranks: wrong))
    [facts, _] = caught.value.args
    assert not facts["raised"] and np.array_equal(facts["rating"], wrong, equal_nan=True)
    assert len(facts["ranks"]) == len(problem.cluster.rank_hbm)


def test_an_objective_that_raised_fails_wherever_it_is_called():
    problem, search = solvable()
    own = with_objective(search, lambda ranks: 1.0, done=0)
    stock = solve(problem, search)
    for call in (
        lambda: solve(problem, own),
        lambda: placer(problem, own.partitioner, own.objective).place(stock.options.tolist()),
        lambda: verify(problem, stock, own.objective),
    ):
        with pytest.raises(Failed) as caught:
            call()
        assert caught.value.args[0]["raised"]


def test_optimize_takes_custom_costs_and_refuses_objectives():
    problem, search = solvable()
    settings = Optimize(time_budget=None, move_budget=100)
    with pytest.raises(ValueError, match="tests:called rates plans otherwise"):
        optimize(problem, with_objective(search, lambda ranks: 1.0), settings)
    made = request([table("a", 1000, 64), table("b", 70, 32)], 4, 4, ("table_wise", "row_wise"))

    def change(shards, costs):
        for part in costs.dtype.names:
            costs[part] *= 3.0

    spaces = estimate(made), estimate(priced(made, cost(change)))
    found = [optimize(Problem(s, _roomy(4)), search, settings).rating for s in spaces]
    assert found[1] == pytest.approx(3 * found[0], rel=1e-12)


def _roomy(ranks):
    from fastplan.model.request import Cluster

    room = (1 << 40,) * ranks
    return Cluster(
        rank_hbm=room, rank_ddr=room, rank_ssd=room, local_world_size=ranks, group_size=ranks
    )
