"""What last_run tells."""

import itertools
import pickle

import pytest

from fastplan import EmbeddingShardingPlanner
from fastplan.planning import run as run_module
from fastplan.planning.run import Run
from tests.parity.instances import make_instance


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock takes a second."""
    ticks = itertools.count()
    monkeypatch.setattr(run_module, "perf_counter", lambda: float(next(ticks)))


def test_plans_are_counted_once_and_only_when_asked():
    asked = []
    run = Run()
    run.count_plans(lambda: asked.append(1) or 7)
    assert asked == []
    assert (run.plans, run.plans) == (7, 7)
    assert asked == [1]


def test_a_bound_is_proven_once_and_only_when_asked():
    asked = []
    run = Run()
    run.rating = 3.0
    run.bound_plans(lambda: asked.append(1) or 2.0)
    assert "gap" not in repr(run)
    assert asked == []
    assert (run.gap, run.lower_bound) == (0.5, 2.0)
    assert asked == [1]
    assert "gap=50.0000%" in repr(run)


def test_a_bound_that_is_not_proven_is_tried_once():
    asked = []
    run = Run()
    run.rating = 3.0
    run.bound_plans(lambda: asked.append(1))
    assert (run.lower_bound, run.gap, asked) == (None, None, [1])
    assert "gap" not in repr(run)


def test_a_copy_has_the_results_and_not_the_means():
    run = Run()
    run.count_plans(lambda: 7)
    run.bound_plans(lambda: 2.0)
    again = pickle.loads(pickle.dumps(run))
    assert (again.plans, again.lower_bound) == (7, 2.0)


def test_reasons_add_up():
    run = Run()
    run.add_reason("mixed", "one")
    run.add_reason("torchrec", "two")
    assert (run.engine, run.reason) == ("torchrec", "one; two")


def test_phases_are_timed_even_when_they_fail():
    run = Run()
    with pytest.raises(ValueError, match="no"), run.phase("search"):
        raise ValueError("no")
    run.finish()
    with run.phase("stats"):
        run.finish()
    run.finish()
    assert list(run.seconds) == ["search", "stats", "other", "total"]
    assert "search" in repr(run)


def test_phases_add_up_to_the_total(clock):
    run = Run()
    with run.phase("replan"), run.phase("cache"):
        pass
    with run.phase("cache"):
        pass
    run.finish()
    assert run.seconds == {"cache": 2.0, "replan": 2.0, "other": 3.0, "total": 7.0}


def test_every_second_of_a_plan_has_a_phase(clock):
    built = make_instance(0).build()
    planner = EmbeddingShardingPlanner(**built.planner_kwargs)
    planner.plan(built.module, built.sharders)
    *phases, total = planner.last_run.seconds.values()
    assert sum(phases) == total
    assert list(planner.last_run.seconds)[-3:] == ["garbage", "other", "total"]
