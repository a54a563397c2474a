"""The arguments of `fastplan.plan()`: what they take, and what they say about anything else."""

import pytest

from fastplan.engine.optimize import Optimize
from fastplan.model.job import CannotPlan
from fastplan.planning.policy import Replan
from fastplan.planning.specs import plan_spec
from fastplan.spec.model import TopologySpec
from tests.sweep.samples import hardware, model

FREE = Replan(max_moved=1.0, slack=1.0, max_changed=1.0)


def spec(rows=1_000_000):
    return model(rows=rows, topology=TopologySpec(hardware=hardware(), world_size=4))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"previous": 3}, "`previous` must be a plan, the path of a plan file, .*, not int"),
        ({"replan": "auto"}, "`replan` must be a fastplan.Replan or None, not 'auto'"),
        ({"replan": {}}, "`replan` must be a fastplan.Replan or None, not {}"),
        ({"optimize": True}, "`optimize` must be a fastplan.Optimize or None, not True"),
        ({"optimize": {}}, "`optimize` must be a fastplan.Optimize or None, not {}"),
        ({"optimize": Replan()}, "`optimize` must be a fastplan.Optimize or None, not Replan"),
        ({"replan": Optimize()}, "`replan` must be a fastplan.Replan or None, not Optimize"),
    ],
)
@pytest.mark.parametrize("replicas", [None, 2])
def test_an_argument_of_another_type_is_refused_by_name(given, told, replicas):
    with pytest.raises(TypeError, match=told):
        plan_spec(spec(), replicas=replicas, **given)


def test_a_plan_follows_the_result_of_an_earlier_call():
    earlier = plan_spec(spec(rows=900_000))
    followed = plan_spec(spec(), previous=earlier, replan=FREE)
    assert followed.replan.followed
    same = plan_spec(spec(), previous=earlier.plan(), replan=FREE)
    assert followed.record.pack() == same.record.pack()


def test_a_result_without_a_plan_can_not_be_followed():
    earlier = plan_spec(spec(rows=10**12))
    assert earlier.placement is None
    with pytest.raises(CannotPlan, match="`previous` is a result without a plan: "):
        plan_spec(spec(), previous=earlier)
