"""What last_run tells."""

import itertools
import pickle
import random

import pytest

from fastplan import EmbeddingShardingPlanner
from fastplan.cache.plan_cache import CacheReport
from fastplan.planning import run as run_module
from fastplan.planning.moves import list_moves
from fastplan.planning.replan import ReplanReport
from fastplan.planning.run import Run
from fastplan.torchrec import planner as planner_module
from tests.parity.instances import make_instance
from tests.report.samples import criteo, criteo_row_wise


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
    assert "gap 50.0000%" in repr(run)


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


def shown(run):
    """The lines of a run by their labels."""
    return dict(line.split(maxsplit=1) for line in repr(run).splitlines())


def test_a_run_prints_a_line_on_each_subject(clock):
    run = Run()
    assert shown(run) == {
        "engine": "native",
        "rating": "none",
        "time": "not planned yet",
        "cache": "off",
    }
    run.add_reason("mixed", "a proposer is custom")
    run.take_counts(787, 12, 2.0866715)
    run.cache = CacheReport(status="miss", reason="there is no entry")
    with run.phase("search"):
        pass
    assert shown(run)["time"] == "search 1000.00 ms so far"
    run.finish()
    run.stopped_by = "moves"
    assert str(run) == repr(run)
    assert shown(run) == {
        "engine": "mixed: a proposer is custom",
        "rating": "2.08667 ms, 787 proposals, 787 placed, stopped by moves",
        "time": "3000.00 ms = search 1000.00 + other 2000.00",
        "cache": "miss: there is no entry",
    }


def test_a_run_says_why_it_did_not_do_what_was_asked():
    run = Run()
    run.costs = "hardware"
    run.not_optimized, run.not_followed = "no plan fits", "too much would move"
    run.objective, run.objective_before = 1.5, 2.5
    found = shown(run)
    assert found["rating"] == "none by hardware costs"
    assert found["optimizer"] == "not used: no plan fits"
    assert found["objective"] == "1.5, before 2.5"
    assert found["replan"] == "not followed: too much would move"


def report(listed, **changes):
    """A report whose moves are listed when someone asks for them."""

    def moves():
        listed.append(1)
        return list_moves(criteo(), criteo_row_wise())

    found = {
        "followed": True,
        "previous": "entry 0123",
        "reason": None,
        "difference": "nothing differs",
        "rating": 1.0,
        "moved": 0,
        "least": 0,
        "held": 5 << 30,
        "scratch_rating": None,
        "scratch_moved": None,
        "_list": moves,
        **changes,
    }
    return ReplanReport(**found)


def test_a_replan_is_one_line_whatever_moves():
    listed = []
    run = Run()
    run.replan = report(listed)
    assert shown(run)["replan"] == "follows entry 0123: nothing moves; nothing differs"
    run.replan = report(listed, followed=False, reason="a limit", moved=1 << 30)
    assert shown(run)["replan"] == (
        "from scratch, not entry 0123 (a limit): moves 1 GiB of 5 GiB; nothing differs"
    )
    assert listed == []
    assert len(repr(run)) < 400


def test_moves_print_their_sums():
    none = list_moves(criteo(), criteo())
    assert repr(none).startswith("Moves(0 moves, 0 B")
    some = list_moves(criteo(), criteo_row_wise())
    assert len(some) > 20
    assert repr(some).startswith(f"Moves({len(some)} moves, ")
    assert len(repr(some)) < 100


def test_the_first_plan_names_its_imports(monkeypatch, clock):
    built = make_instance(0).build()
    for first in (True, False):
        monkeypatch.setattr(planner_module, "is_first_plan", lambda first=first: first)
        planner = EmbeddingShardingPlanner(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        assert ("imports" in planner.last_run.seconds) == first


def test_what_is_shown_of_phases_adds_up():
    rng = random.Random(1)
    for _ in range(200):
        run = Run()
        phases = {f"p{i}": rng.choice((0.0, 1e-6, 1e-3)) * rng.random() for i in range(9)}
        run.seconds = {**phases, "total": sum(phases.values())}
        total, _, parts = shown(run)["time"].partition(" ms = ")
        hundredths = [round(100 * float(part.split()[1])) for part in parts.split(" + ")]
        assert sum(hundredths) == round(100 * float(total))
        assert float(total) == pytest.approx(1000 * run.seconds["total"], abs=0.006)
        assert min(hundredths) >= 0
