"""The bound by averages is that of a linear program, solved here by somebody else's solver."""

import numpy as np
import pytest

from fastplan.engine.optimize import Certificate, lower_bound
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from tests.problems import random_problem

highspy = pytest.importorskip("highspy")


def options_of(problem):
    """By table: cost per rank, largest shard and memory of options that fit on some rank."""
    space, cluster = problem.space, problem.cluster
    total = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms
    total = total + space.run_bwd_comms + space.run_prefetch_compute
    memory = np.stack([space.run_hbm, space.run_ddr, space.run_ssd], axis=1)
    rooms = np.stack([cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd], axis=1)
    tables = []
    for begin, end in zip(space.table_option_begin, space.table_option_begin[1:], strict=False):
        own = []
        for option in range(begin, end):
            runs = slice(*space.option_run_begin[option : option + 2])
            count = space.run_count[runs]
            uniform = SHARDING_TYPES[space.option_type[option]] in UNIFORM_TYPES
            if not all((rooms >= need).all(axis=1).any() for need in memory[runs]):
                continue
            if uniform and count.sum() != len(rooms):
                continue
            largest = 0.0 if uniform else total[runs].max()
            average = (count * total[runs]).sum() / len(rooms)
            own.append((average, largest, count @ memory[runs]))
        tables.append(own)
    return tables, rooms.sum(axis=0)


def least_average(tables, room, largest):
    """The least cost per rank with shards of at most `largest`; None when there is no choice."""
    program = highspy.Highs()
    program.silent()
    tables = [[option for option in own if option[1] <= largest] for own in tables]
    if not all(tables):
        return None
    scale = np.maximum(room, 1)
    need = [[], [], []]
    for own in tables:
        chosen = [program.addVariable(lb=0, obj=float(average)) for average, *_ in own]
        program.addConstr(sum(chosen) == 1)
        for variable, (_, _, memory) in zip(chosen, own, strict=True):
            for tier in range(3):
                # The solver takes no coefficients that are all but zero.
                if memory[tier] > 1e-8 * scale[tier]:
                    need[tier].append(variable * float(memory[tier] / scale[tier]))
    for tier in range(3):
        if need[tier]:
            program.addConstr(sum(need[tier]) <= float(room[tier] / scale[tier]))
    program.run()
    if program.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return program.getInfo().objective_function_value


def bound_by_program(problem):
    """The least T for which options with shards of at most T cost at most T per rank."""
    tables, room = options_of(problem)
    if not all(tables):
        return None
    sizes = sorted({largest for own in tables for _, largest, _ in own})
    for size, larger in zip(sizes, [*sizes[1:], np.inf], strict=True):
        average = least_average(tables, room, size)
        if average is not None and average <= larger:
            return max(average, size)
    return None


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_the_bound_is_no_weaker_than_the_linear_program(first):
    compared = 0
    for seed in range(first, first + 40):
        problem, _ = random_problem(seed)
        expected = bound_by_program(problem)
        found = lower_bound(problem)
        if expected is None:
            assert not isinstance(found, Certificate), seed
            continue
        compared += 1
        # It also knows what is on every rank, so it may be higher.
        assert isinstance(found, Certificate), seed
        assert found.value >= expected * (1 - 1e-5), seed
    assert compared > 20
