"""Planners with hardware costs."""

import pickle

import pytest
import torch
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim import LAMB

from fastplan.engine.optimize import Optimize
from fastplan.planning.specs import plan_spec
from fastplan.spec.hardware import HardwareError
from fastplan.spec.stock import VERSIONS
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.planner import EmbeddingShardingPlanner
from fastplan.torchrec.support import support

pytestmark = pytest.mark.skipif(
    bool(support.decide().reasons), reason="the estimates are not native, so costs are TorchRec's"
)
SHARDERS = [EmbeddingBagCollectionSharder()]


def model(optimizer=None):
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}",
            embedding_dim=64,
            num_embeddings=10 ** (3 + i % 4),
            feature_names=[f"f{i}"],
        )
        for i in range(6)
    ]
    module = EmbeddingBagCollection(device=torch.device("meta"), tables=tables)
    if optimizer is not None:
        apply_in_backward(optimizer, module.parameters(), {"lr": 0.1})
    return module


def topology(ranks=8):
    return Topology(world_size=ranks, local_world_size=4, compute_device="cuda", hbm_cap=2**34)


def planner(**arguments):
    fields = {"topology": topology(), "batch_size": 512, "costs": "hardware", "sku": "h100"}
    return EmbeddingShardingPlanner(**fields | arguments)


def test_the_last_run_has_the_predicted_step_and_its_constants():
    one = planner(optimize=Optimize(time_budget=None, move_budget=500))
    one.plan(model(), SHARDERS)
    run = one.last_run
    assert (run.engine, run.costs, run.reason) == ("native", "hardware", None)
    assert run.step.ms == pytest.approx(run.objective)
    assert run.step.ms == pytest.approx(sum(phase.ms for phase in run.step.phases))
    assert run.step.constants["hbm_forward.latency"].n > 0
    assert pickle.loads(pickle.dumps(run)).step == run.step


def test_torchrecs_costs_have_no_step():
    one = EmbeddingShardingPlanner(topology=topology(), batch_size=512)
    one.plan(model(), SHARDERS)
    assert (one.last_run.costs, one.last_run.step) == ("torchrec", None)


@pytest.mark.skipif(
    support.torchrec_name() not in VERSIONS, reason="specs don't have the rules of this version"
)
def test_an_exported_spec_gives_the_same_plan_under_the_same_key():
    module = model(LAMB)
    one = planner(pipeline="train_sparse_dist")
    one.plan(module, SHARDERS)
    spec = export_spec(one, module, SHARDERS, name="m")
    result = plan_spec(spec)
    assert (spec.costs, spec.pipeline) == ("hardware", "train_sparse_dist")
    assert result.job.request.hardware.states == (2.0,) * 6
    assert result.step == one.last_run.step


def test_the_sharder_may_name_the_optimizer():
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.ADAM})
    one = planner()
    one.plan(model(), [sharder])
    assert one._fastplan.result.job.request.hardware.states == (2.0,) * 6


class OwnEnumerator(EmbeddingEnumerator):
    def enumerate(self, module, sharders):
        return super().enumerate(module, sharders)[::2]


def test_an_enumerator_in_python_has_torchrecs_costs_and_the_reason_says_so():
    own = OwnEnumerator(topology=topology(), batch_size=512)
    one = planner(enumerator=own)
    one.plan(model(), SHARDERS)
    assert (one.last_run.engine, one.last_run.costs) == ("mixed", "torchrec")
    assert "costs are TorchRec's" in one.last_run.reason


def test_a_kernel_without_figures_has_torchrecs_costs_and_the_reason_names_it():
    rules = {"t0": ParameterConstraints(compute_kernels=["key_value"])}
    one = planner(topology=Topology(world_size=2, compute_device="cuda"), constraints=rules)
    one.plan(model(), SHARDERS)
    assert (one.last_run.engine, one.last_run.costs) == ("mixed", "torchrec")
    assert "table t0: hardware costs have no figures for key_value" in one.last_run.reason


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sku": None}, ValueError, '`costs="hardware"` needs `sku`'),
        ({"costs": "other"}, ValueError, "`costs` must be one of torchrec, hardware"),
        ({"costs": "torchrec"}, ValueError, "`sku` is for"),
        ({"costs": "torchrec", "sku": None, "pipeline": "train_sparse_dist"}, ValueError, "`pipe"),
        ({"pipeline": "other"}, ValueError, "`pipeline` must be one of"),
        ({"sku": "h10"}, HardwareError, "did you mean h100"),
        ({"sku": "torchrec"}, HardwareError, "torchrec has no"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        planner(**arguments)
