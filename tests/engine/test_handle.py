"""The native problem: built once, a copy that never changes, shared by threads."""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.better_proposal import better_proposal
from fastplan.engine.certificate import lower_bound
from fastplan.engine.optimize import Optimize, optimize
from fastplan.engine.solve import OutOfRange, count_plans, solve, verify
from fastplan.model.request import Partitioner
from tests.problems import DEFAULT_SEARCH, random_problem, small_problem

SETTINGS = Optimize(time_budget=None, move_budget=2_000)


@pytest.fixture
def built(monkeypatch):
    """The columns of every native problem that is built."""
    seen = []
    problem = _native.Problem
    monkeypatch.setattr(
        _native, "Problem", lambda columns: seen.append(columns) or problem(columns)
    )
    return seen


def test_all_functions_share_one_native_problem(built):
    problem = small_problem()
    found = solve(problem, DEFAULT_SEARCH)
    assert verify(problem, found) == ""
    count_plans(problem, DEFAULT_SEARCH)
    better_proposal(problem, DEFAULT_SEARCH, found.rating)
    lower_bound(problem)
    optimize(problem, DEFAULT_SEARCH, SETTINGS, start=found)
    assert len(built) == 1


def test_copies_build_their_own(built):
    problem = small_problem()
    rating = solve(problem, DEFAULT_SEARCH).rating
    copies = (
        copy.copy(problem),
        copy.deepcopy(problem),
        pickle.loads(pickle.dumps(problem)),
        replace(problem),
    )
    for each in copies:
        assert each.handle is not problem.handle
        assert solve(each, DEFAULT_SEARCH).rating == rating
    assert len(built) == 1 + len(copies)
    assert "handle" not in asdict(problem)


def test_columns_that_change_afterwards_change_nothing():
    columns = small_problem().columns()
    plan = {"options": np.arange(0, 78, 13, dtype=np.int32), "ranks": np.zeros(0, np.int32)}
    handle = _native.Problem(columns)
    rating = _native.rate(handle, plan)
    for column in columns.values():
        if isinstance(column, np.ndarray):
            column[:] = 0
    assert _native.rate(handle, plan) == rating > 0


def test_a_placer_keeps_its_problem():
    problem = small_problem()
    found = solve(problem, DEFAULT_SEARCH)
    placer = _native.Placer(_native.Problem(problem.columns()), asdict(Partitioner()))
    ranks, rating = placer.place(found.options.tolist())
    assert (ranks, rating) == (found.ranks.tolist(), found.rating)


def test_a_problem_that_is_refused_is_refused_again():
    problem = small_problem(rank_hbm=(1 << 60,) * 8)
    for _ in range(2):
        with pytest.raises(OutOfRange, match="rank_hbm"):
            solve(problem, DEFAULT_SEARCH)


@pytest.mark.parametrize("seed", range(4))
def test_threads_share_a_problem(seed):
    problem, search = random_problem(seed)

    def ask(number):
        found = solve(problem, search)
        better = optimize(problem, search, replace(SETTINGS, seed=number % 3))
        return found.rating, better.rating, better.lower_bound

    expected = [ask(number) for number in range(3)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(12)))
    assert answers == expected * 4
    assert not any(map(math.isnan, answers[0]))
