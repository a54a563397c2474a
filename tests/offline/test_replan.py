"""Jobs that follow a previous plan without TorchRec."""

import pytest

from fastplan.core.optimize import OptimizeSettings
from fastplan.offline.plan import plan_job
from fastplan.offline.replan import replan_job
from fastplan.replan.policy import ReplanPolicy
from fastplan.spec.lower import lower
from fastplan.spec.model import TopologySpec
from tests.offline.samples import hardware, model

FREE = ReplanPolicy(max_moved=1.0, slack=1.0)
NEVER = ReplanPolicy(max_changed=0.0)
BETTER = OptimizeSettings(time_budget=None, move_budget=1_000)


def job(ranks=4, rows=1_000_000):
    topology = TopologySpec(hardware=hardware(), world_size=ranks)
    return lower(model(rows=rows, topology=topology))


def old(**changes):
    return plan_job(job(**changes)).plan()


@pytest.mark.parametrize("optimization", [None, BETTER], ids=["torchrec", "better"])
def test_a_plan_that_follows_has_a_key_of_its_own(optimization):
    scratch = plan_job(job(), optimization=optimization)
    planned = replan_job(job(), old(ranks=8), FREE, optimization)
    assert planned.replan.followed
    assert planned.key != scratch.key
    other = replan_job(job(), old(ranks=8), NEVER, optimization)
    assert other.replan.followed
    assert len({planned.key, other.key, scratch.key}) == 3


@pytest.mark.parametrize("optimization", [None, BETTER], ids=["torchrec", "better"])
def test_a_plan_that_does_not_follow_has_the_key_of_the_plan_from_scratch(optimization):
    scratch = plan_job(job(), optimization=optimization)
    planned = replan_job(job(), old(rows=900_000), NEVER, optimization)
    assert not planned.replan.followed
    assert planned.record.rating == scratch.record.rating
    assert (planned.key, planned.canonical) == (scratch.key, scratch.canonical)
    assert planned.cache.fingerprint == planned.plan().fingerprint == scratch.key
