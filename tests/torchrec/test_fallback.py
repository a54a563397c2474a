"""Errors in using TorchRec let TorchRec's own code plan; errors of users' code are raised."""

import logging

import pytest
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer
from torchrec.distributed.planner.types import Proposer

from fastplan.torchrec import planning
from fastplan.torchrec.plan_facts import first_difference, plan_facts
from fastplan.torchrec.read import extract
from tests.torchrec.test_any_version import EmbeddingBagCollectionSharder, arguments, model
from tests.torchrec.test_any_version import EmbeddingShardingPlanner as FastPlanner

SHARDERS = [EmbeddingBagCollectionSharder()]


def planned(planner_class, **more):
    planner = planner_class(**arguments(4, 2, 3, **more))
    plan = planner.plan(model(4, 3), SHARDERS)
    return planner, plan_facts(plan, planner._perf_model.rate(plan=planner._best_plan))


def break_reading(monkeypatch, error):
    def fail(self, *args, **kwargs):
        raise error

    monkeypatch.setattr(extract.Extraction, "walk", fail)
    # The frame of this test stands for one of the package.
    monkeypatch.setattr("fastplan.torchrec.fallback._OWN_FOLDER", __file__)


@pytest.mark.parametrize(
    "error", [AttributeError("no x"), TypeError("no y"), KeyError("z"), AssertionError()]
)
def test_an_error_in_using_torchrec_falls_back(monkeypatch, caplog, error):
    _, expected = planned(TorchRecPlanner)
    break_reading(monkeypatch, error)
    with caplog.at_level(logging.WARNING, "fastplan"):
        planner, actual = planned(FastPlanner)
    if planner.last_run.engine == "mixed":
        pytest.skip("this TorchRec's tables are not read natively")
    assert first_difference(actual, expected) is None
    assert planner.last_run.engine == "torchrec"
    assert f"native planning failed with {type(error).__name__}" in planner.last_run.reason
    assert "native planning failed" in caplog.text


def test_after_a_failed_search_torchrecs_proposers_start_from_the_beginning(monkeypatch):
    def fail(self, *args, **kwargs):
        raise AttributeError("no longer there")

    monkeypatch.setattr(planning.Planning, "_build", fail)
    monkeypatch.setattr("fastplan.torchrec.fallback._OWN_FOLDER", __file__)
    _, expected = planned(TorchRecPlanner, proposer=DynamicProgrammingProposer(20))
    planner, actual = planned(FastPlanner, proposer=DynamicProgrammingProposer(20))
    assert planner.last_run.engine == "torchrec"
    assert first_difference(actual, expected) is None


class Failing(Proposer):
    def load(self, search_space, enumerator=None):
        raise AttributeError("of the user's code")

    def propose(self):
        return None

    def feedback(self, *args, **kwargs):
        pass


def test_an_error_of_users_code_is_raised():
    with pytest.raises(AttributeError, match="of the user's code"):
        planned(FastPlanner, proposer=Failing())


def test_a_wrong_previous_plan_is_the_callers_error():
    planner = FastPlanner(**arguments(4, 2, 3), previous=3)
    with pytest.raises(TypeError, match="`previous` must be a plan"):
        planner.plan(model(4, 3), SHARDERS)
