"""Offload plans of planners: the same as from specs, with TorchRec's own fields."""

import numpy as np
import pytest
import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from fastplan.engine.optimize import Optimize
from fastplan.planning.specs import plan_spec
from fastplan.spec.stock import VERSIONS
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.planner import EmbeddingShardingPlanner
from fastplan.torchrec.support import support
from tests.ids import skewed_statistics

pytestmark = pytest.mark.skipif(
    bool(support.decide().reasons), reason="the estimates are not native, so costs are TorchRec's"
)
SHARDERS = [EmbeddingBagCollectionSharder()]
ROWS = 200_000
MOVES = Optimize(time_budget=None, move_budget=3000, offload=True)
STATISTICS = {f"t{i}": skewed_statistics(ROWS) for i in range(6)}


def model():
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=64, num_embeddings=ROWS, feature_names=[f"f{i}"]
        )
        for i in range(8)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def planner(**arguments):
    rules = {f"t{i}": ParameterConstraints(pooling_factors=[20.0]) for i in range(8)}
    rules["t1"].cache_params = CacheParams(load_factor=0.05)
    del rules["t7"]  # a table without any constraint
    topology = Topology(
        world_size=4, local_world_size=4, compute_device="cuda", hbm_cap=60 << 20, ddr_cap=1 << 34
    )
    fields = {
        "topology": topology,
        "batch_size": 1024,
        "constraints": rules,
        "storage_reservation": FixedPercentageStorageReservation(0.0),
        "costs": "hardware",
        "sku": "h100",
        "statistics": STATISTICS,
        "optimize": MOVES,
    }
    return EmbeddingShardingPlanner(**fields | arguments)


def factors(plan):
    return {
        name: own.cache_params.load_factor
        for name, own in plan.get_plan_for_module("").items()
        if own.compute_kernel == "fused_uvm_caching" and own.cache_params is not None
    }


def test_the_sharding_plan_has_cache_params():
    one = planner()
    plan = one.plan(model(), SHARDERS)
    assert one.last_run.not_optimized is None
    record = one._fastplan.result.record
    names = [f"t{n}" for n in record.table.tolist()]
    sized = {
        name: factor
        for name, factor in zip(names, record.load_factor.tolist(), strict=True)
        if not np.isnan(factor)
    }
    assert sized
    assert sized.items() <= factors(plan).items()
    assert one.last_run.step.ms == pytest.approx(one.last_run.objective)


@pytest.mark.skipif(
    support.torchrec_name() not in VERSIONS, reason="specs don't have the rules of this version"
)
def test_an_exported_spec_gives_the_same_plan_under_the_same_key():
    module, one = model(), planner()
    one.plan(module, SHARDERS)
    result = plan_spec(export_spec(one, module, SHARDERS, name="m"), optimize=MOVES)
    own = one._fastplan.result
    assert result.key.fingerprint == own.key.fingerprint
    assert result.record.pack() == own.record.pack()
    assert result.step == one.last_run.step


def test_a_cached_plan_is_the_same(tmp_path):
    plans = []
    for status in ("miss", "hit"):
        one = planner(cache=tmp_path)
        plans.append(one.plan(model(), SHARDERS))
        assert one.last_run.cache.status == status, one.last_run.cache
    assert factors(plans[0]) == factors(plans[1])
    assert str(plans[0]) == str(plans[1])
