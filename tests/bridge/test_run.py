"""What last_run tells."""

import pytest

from fastplan.bridge.run import Run


def test_plans_are_counted_once_and_only_when_asked():
    asked = []
    run = Run()
    run.count_plans(lambda: asked.append(1) or 7)
    assert asked == []
    assert (run.plans, run.plans) == (7, 7)
    assert asked == [1]


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
    assert list(run.seconds) == ["search", "stats", "total"]
    assert "search" in repr(run)
