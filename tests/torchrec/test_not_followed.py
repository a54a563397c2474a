"""Whatever keeps a plan from following an older one, `last_run.not_followed` names it."""

from dataclasses import replace
from typing import Any

import pytest
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams

from fastplan import (
    EmbeddingShardingPlanner,
    Objectives,
    Optimize,
    Replan,
    StoredPlanLoader,
    save_plan,
)
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.search.backend import PlannerBackend
from tests.torchrec.test_custom import memory, slower
from tests.torchrec.test_replanning import FULL, ROWS, SHARDERS, changed, model, planner

OPTIMIZE = Optimize(time_budget=None, move_budget=2_000)
TOPOLOGY = Topology(world_size=4, compute_device="cuda", local_world_size=2)


class OwnEstimator(EmbeddingPerfEstimator):
    pass


class OwnEnumerator(EmbeddingEnumerator):
    pass


class OwnPartitioner(MemoryBalancedPartitioner):
    pass


def followed(**more: Any) -> EmbeddingShardingPlanner:
    """A planner that has planned a changed model and was given the plan before."""
    first = planner()
    first.plan(model(), SHARDERS)
    used = planner(previous=first, replan=FULL, **more)
    used.plan(changed(), SHARDERS)
    return used


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"objective": memory}, "a custom objective rates plans"),
        (
            {"optimize": replace(OPTIMIZE, objectives=Objectives(minimize="memory"))},
            "`objectives` are set",
        ),
        (
            {"optimize": replace(OPTIMIZE, objectives=Objectives(pins={"t1": 0}))},
            "`objectives` are set",
        ),
        (
            {
                "enumerator": EmbeddingEnumerator(
                    topology=TOPOLOGY,
                    batch_size=512,
                    estimator=[
                        OwnEstimator(topology=TOPOLOGY),
                        EmbeddingStorageEstimator(topology=TOPOLOGY),
                    ],
                )
            },
            "OwnEstimator",
        ),
        ({"enumerator": OwnEnumerator(topology=TOPOLOGY, batch_size=512)}, "OwnEnumerator"),
        ({"partitioner": OwnPartitioner()}, "OwnPartitioner"),
    ],
    ids=["objective", "minimize", "pins", "estimator", "enumerator", "partitioner"],
)
def test_parts_of_ones_own_are_named(arguments, why):
    run = followed(**arguments).last_run
    assert run.replan is None
    assert why in run.not_followed


def test_a_compiled_cost_keeps_nothing_from_following():
    run = followed(shard_cost=slower).last_run
    assert run.replan.followed
    assert run.not_followed is None


def test_the_scale_up_proposer_is_named():
    offloaded = ParameterConstraints(
        sharding_types=["table_wise"],
        compute_kernels=["fused_uvm_caching"],
        cache_params=CacheParams(load_factor=0.1),
    )
    run = followed(
        proposer=EmbeddingOffloadScaleupProposer(),
        constraints=dict.fromkeys([*ROWS, "new"], offloaded),
    ).last_run
    assert "scale-up" in run.not_followed


def test_a_plan_by_torchrec_itself_is_named(monkeypatch):
    first = planner()
    first.plan(model(), SHARDERS)

    def refuse(*_: Any) -> None:
        raise NotNative("this test says so")

    monkeypatch.setattr(PlannerBackend, "search", refuse)
    used = planner(previous=first, replan=Replan(reference="scratch"))
    used.plan(changed(), SHARDERS)
    assert used.last_run.not_followed == "TorchRec's own code planned: this test says so"


def test_a_loaded_plan_is_named(tmp_path):
    first = planner()
    save_plan(first.plan(model(), SHARDERS), tmp_path / "plan.json", planner=first)
    module = model()
    loader = StoredPlanLoader(tmp_path / "plan.json", module, sharders=SHARDERS)
    used = planner(previous=first, replan=FULL, plan_loader=loader)
    used.plan(module, SHARDERS)
    assert used.last_run.not_followed == "the plan comes from the plan loader"


def test_without_an_older_plan_there_is_nothing_to_name():
    used = planner(objective=memory)
    used.plan(model(), SHARDERS)
    assert used.last_run.not_followed is None
