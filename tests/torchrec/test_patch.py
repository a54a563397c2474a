"""TorchRec's own defaults use fastplan's planner while it is patched in."""

import sys

import pytest
import torch
import torch.distributed as dist
import torchrec
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed import model_parallel, shard
from torchrec.distributed.planner import planners

import fastplan
from fastplan.torchrec.patch import patch as patching
from tests.interpreter import python

STOCK = planners.EmbeddingShardingPlanner


def defaults() -> set[type]:
    return {
        torchrec.distributed.planner.EmbeddingShardingPlanner,
        model_parallel.EmbeddingShardingPlanner,
        shard.EmbeddingShardingPlanner,
    }


def test_a_block_is_patched_and_afterwards_nothing_is():
    with fastplan.patch():
        assert defaults() == {fastplan.EmbeddingShardingPlanner}
    assert defaults() == {STOCK}


def test_the_patch_is_taken_back_after_an_error():
    with pytest.raises(RuntimeError), fastplan.patch():
        raise RuntimeError
    assert defaults() == {STOCK}


def test_a_second_patch_inside_leaves_the_first_in_place():
    with fastplan.patch():
        with fastplan.patch():
            pass
        assert defaults() == {fastplan.EmbeddingShardingPlanner}
    assert defaults() == {STOCK}


def test_a_call_patches_until_it_is_undone():
    patch = fastplan.patch()
    assert defaults() == {fastplan.EmbeddingShardingPlanner}
    patch.undo()
    assert defaults() == {STOCK}


def test_the_stock_class_stays_where_fastplans_own_class_comes_from():
    with fastplan.patch():
        assert planners.EmbeddingShardingPlanner is STOCK
        assert fastplan.EmbeddingShardingPlanner.__mro__[1] is STOCK


@pytest.mark.parametrize(
    ("value", "patched"),
    [("init", "True True"), ("1", "True False"), ("0", "not loaded"), ("", "not loaded")],
)
def test_the_environment_variable_patches_on_import(value, patched):
    code = """
import fastplan, sys
torchrec = sys.modules.get("torchrec.distributed")
if torchrec is None:
    print("not loaded")
else:
    planner = torchrec.model_parallel.EmbeddingShardingPlanner
    start = torchrec.embedding_sharding.group_tables
    print(planner.__module__.startswith("fastplan"), hasattr(start, "__wrapped__"))
"""
    assert python(code, FASTPLAN_PATCH=value).splitlines()[-1] == patched


@pytest.mark.parametrize("value", ["1", "init"])
def test_a_version_that_fails_is_a_warning_with_the_variable(value):
    code = """
import logging, sys
logging.basicConfig(stream=sys.stdout, force=True)
sys.modules["torchrec.distributed.planner.planners"] = None  # as if TorchRec had it elsewhere
import fastplan
print(fastplan.__version__)
"""
    warning, version = python(code, FASTPLAN_PATCH=value).splitlines()[-2:]
    assert warning.startswith(f"WARNING:fastplan:FASTPLAN_PATCH={value} has no effect")
    assert "torchrec.distributed.planner.planners" in warning
    assert version == fastplan.__version__


def test_a_default_that_torchrec_lacks_is_skipped_with_the_reason(monkeypatch, caplog):
    monkeypatch.setattr(patching, "_logged", set())
    monkeypatch.setitem(sys.modules, "torchrec.distributed.shard", None)
    monkeypatch.delattr(model_parallel, "EmbeddingShardingPlanner")
    with fastplan.patch() as patch, fastplan.patch():
        assert patch.applied == ("torchrec.distributed.planner.EmbeddingShardingPlanner",)
        found = {name.split(".")[2]: reason for name, reason in patch.skipped.items()}
        assert set(found) == {"model_parallel", "shard"}
        assert "has no EmbeddingShardingPlanner" in found["model_parallel"]
        assert "can't be imported" in found["shard"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert torchrec.distributed.planner.EmbeddingShardingPlanner is STOCK


def test_a_default_that_other_code_has_replaced_is_skipped_with_the_reason(monkeypatch):
    class Theirs(STOCK):
        pass

    monkeypatch.setattr(shard, "EmbeddingShardingPlanner", Theirs)
    with fastplan.patch() as patch:
        assert shard.EmbeddingShardingPlanner is Theirs
        [reason] = patch.skipped.values()
    assert reason == f"other code has replaced it by {Theirs!r}"


@pytest.fixture
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_distributed_model_parallel_plans_with_it(monkeypatch):
    runs = []
    plan = fastplan.EmbeddingShardingPlanner.plan

    def spy(self, module, sharders):
        result = plan(self, module, sharders)
        runs.append(self.last_run)
        return result

    monkeypatch.setattr(fastplan.EmbeddingShardingPlanner, "plan", spy)
    tables = [EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=16, feature_names=["f"])]
    module = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    with fastplan.patch():
        sharded = model_parallel.DistributedModelParallel(module, device=torch.device("cpu"))
    assert [run.engine for run in runs] == ["native"]
    assert "t" in sharded.plan.plan[""]
