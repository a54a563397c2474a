"""What holds with every TorchRec that imports; uses only what all versions have."""

import logging
import random
import re

import pytest
import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from fastplan import EmbeddingShardingPlanner
from fastplan.torchrec.plan_facts import first_difference, option_facts, plan_facts
from fastplan.torchrec.support import support
from fastplan.torchrec.support.proof import prove

ENGINE = "mixed" if support.decide().reasons else "native"


def model(tables, seed):
    draw = random.Random(seed)
    configs = [
        EmbeddingBagConfig(
            name=f"table_{number}",
            embedding_dim=draw.choice([16, 64, 128, 192]),
            num_embeddings=draw.randint(100, 200_000),
            feature_names=[f"feature_{number}"],
        )
        for number in range(tables)
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("meta"))


def arguments(tables, ranks, seed, **more):
    draw = random.Random(seed + 1)
    topology = Topology(
        world_size=ranks, local_world_size=2, compute_device="cuda", hbm_cap=1 << 29
    )
    constraints = {
        f"table_{number}": ParameterConstraints(pooling_factors=[draw.uniform(1, 30)])
        for number in range(0, tables, 2)
    }
    return {"topology": topology, "constraints": constraints, "stats": [], **more}


def outcome(planner_class, make_more, tables=6, ranks=4, seed=0):
    given = arguments(tables, ranks, seed)
    planner = planner_class(**given, **make_more(given))
    plan = planner.plan(model(tables, seed), [EmbeddingBagCollectionSharder()])
    rating = planner._perf_model.rate(plan=planner._best_plan)
    return planner, plan_facts(plan, rating), option_facts(planner._best_plan)


def assert_same(make_more, **size):
    theirs, expected, expected_options = outcome(TorchRecPlanner, make_more, **size)
    ours, actual, options = outcome(EmbeddingShardingPlanner, make_more, **size)
    assert first_difference(actual, expected) is None
    assert first_difference(options, expected_options) is None
    assert (ours._num_proposals, ours._num_plans) == (theirs._num_proposals, theirs._num_plans)
    return ours


@pytest.mark.parametrize("seed", range(3))
def test_plans_of_stock_parts_are_torchrecs(seed):
    planner = assert_same(lambda given: {}, tables=8, seed=seed)
    assert planner.last_run.engine == ENGINE, planner.last_run.reason


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_statistics_are_torchrecs(level, caplog):
    tables = []
    with caplog.at_level(level, "torchrec.distributed.planner.stats"):
        for kind in (TorchRecPlanner, EmbeddingShardingPlanner):
            planner = kind(**{**arguments(6, 4, 0), "stats": [EmbeddingStats()]})
            planner.plan(model(6, 0), [EmbeddingBagCollectionSharder()])
            lines = [" ".join(line.split()) for line in planner._stats[0]._stats_table]
            tables.append([re.sub(r"ran for [\d.]+s", "ran", line) for line in lines])
    assert tables[0] == tables[1]
    assert planner.last_run.engine == ENGINE, planner.last_run.reason


class Adding(EmbeddingEnumerator):
    """Marks the options of one table, as frameworks do."""

    def enumerate(self, module, sharders):
        options = super().enumerate(module, sharders)
        for option in options:
            option.use_dynamic = option.name == "table_1"
        return [option for option in options if option.sharding_type != "table_column_wise"]


class Stopping(GreedyProposer):
    """Proposes a few times."""

    def propose(self):
        self.asked = getattr(self, "asked", 0) + 1
        return super().propose() if self.asked < 20 else None


class Partitioner(GreedyPerfPartitioner):
    """TorchRec's, under another name."""


PARTS = {
    "an enumerator": lambda given: {
        "enumerator": Adding(given["topology"], batch_size=64, constraints=given["constraints"])
    },
    "a proposer": lambda given: {"proposer": [Stopping(), UniformProposer()]},
    "a partitioner": lambda given: {"partitioner": Partitioner()},
}


@pytest.mark.parametrize("part", PARTS)
def test_plans_with_a_custom_part_are_torchrecs(part):
    planner = assert_same(PARTS[part])
    assert planner.last_run.engine == "mixed"


def test_a_planner_that_gets_another_topology_and_edits_its_plan():
    def wrapped(base):
        class Wrapped(base):
            def plan(self, module, sharders):
                self._topology = Topology(
                    world_size=2, local_world_size=2, compute_device="cuda", hbm_cap=1 << 30
                )
                plan = super().plan(module, sharders)
                plan.plan[""]["table_0"].compute_kernel = "customized_kernel"
                return plan

        return Wrapped

    records = []
    for base in (TorchRecPlanner, EmbeddingShardingPlanner):
        given = arguments(4, 2, 7)
        planner = wrapped(base)(**given)
        plan = planner.plan(model(4, 7), [EmbeddingBagCollectionSharder()])
        records.append(plan_facts(plan, None))
    assert first_difference(*records) is None


def test_a_full_self_check_finds_nothing_but_what_is_known():
    known = support.decide().reasons
    reasons, plans = prove(draws=3, known=known)
    assert reasons == dict(known)
    assert plans >= 40


def test_decisions_are_logged_as_torchrec_logs_them():
    from torchrec.distributed.planner import planners

    if not hasattr(planners, "log_emo_decision"):
        pytest.skip("this TorchRec logs no decisions")
    from torchrec.utils.emo_logger import get_logger

    logged = []
    for planner_class in (TorchRecPlanner, EmbeddingShardingPlanner):
        get_logger().reset()
        outcome(planner_class, lambda given: {})
        logged.append(get_logger().get_summary().decisions)
    assert len(logged[0]) == 1
    assert logged[0] == logged[1]
