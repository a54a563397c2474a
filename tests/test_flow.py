"""How a request runs through the package: few files, one estimate, one problem."""

import os
import sys
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

import fastplan
import fastplan.planning.replan_session  # only re-plans import it, and imports run class bodies
from fastplan.cache.plan_cache import Cache
from fastplan.cli.main import main
from fastplan.engine import _native
from fastplan.spec.write import write_spec
from tests.parity.compare import quiet

ROOT = os.path.dirname(fastplan.__file__)
SHARDERS = [EmbeddingBagCollectionSharder()]
# What requests pass through today. Fewer is better; more needs a reason.
PLAN, HIT, REPLAN, COMMAND, COMMAND_REPLAN = 29, 38, 39, 36, 43
# A file for each difference between TorchRec's versions, which a reader of the flow can skip.
DIFFERENCES = "torchrec/differences/"


@contextmanager
def files():
    """The package's files whose functions are called."""
    found = set()

    def note(frame, event, _):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(ROOT) and frame.f_code.co_name != "<module>":
            file = os.path.relpath(path, ROOT)
            if not file.startswith(DIFFERENCES):
                found.add(file)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def model(tables=20):
    return EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}",
                embedding_dim=64,
                num_embeddings=100_000 + i,
                feature_names=[f"f{i}"],
            )
            for i in range(tables)
        ],
    )


def planner(**arguments):
    topology = Topology(world_size=4, compute_device="cuda")
    return fastplan.EmbeddingShardingPlanner(
        topology=topology, batch_size=512, stats=[], **arguments
    )


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "model.json"
    with quiet():
        write_spec(fastplan.export_spec(planner(), model(), SHARDERS), path)
    return str(path)


def test_a_plan_runs_through_few_files():
    with quiet():
        planner().plan(model(), SHARDERS)
        used = planner()
        with files() as found:
            used.plan(model(), SHARDERS)
    assert len(found) <= PLAN, sorted(found)


def test_a_hit_runs_through_few_files(tmp_path):
    cache = Cache(tmp_path)
    with quiet():
        planner(cache=cache).plan(model(), SHARDERS)
        used = planner(cache=cache)
        with files() as found:
            used.plan(model(), SHARDERS)
    assert used.last_run.cache.status == "hit"
    assert len(found) <= HIT, sorted(found)
    assert not [path for path in found if "replan" in path]


def test_a_plan_that_follows_another_runs_through_few_files():
    with quiet():
        first = planner()
        first.plan(model(), SHARDERS)
        used = planner(previous=first)
        with files() as found:
            used.plan(model(21), SHARDERS)
    assert used.last_run.replan.followed
    assert len(found) <= REPLAN, sorted(found)


def test_the_command_runs_through_few_files(spec, tmp_path):
    words = ["plan", spec, "--no-cache", "--quiet", "-o"]
    assert main([*words, str(tmp_path / "plan.json")]) == 0  # imports, which run class bodies
    with files() as found:
        assert main([*words, str(tmp_path / "plan.json")]) == 0
    assert len(found) <= COMMAND, sorted(found)
    with files() as found:
        assert (
            main([*words, str(tmp_path / "next.json"), "--previous", f"{tmp_path}/plan.json"]) == 0
        )
    assert len(found) <= COMMAND_REPLAN, sorted(found)


@pytest.fixture
def calls(monkeypatch):
    """How often the core estimates a request, and builds a problem."""
    counted = Counter()
    for name in ("estimate", "Problem"):
        own = getattr(_native, name)
        monkeypatch.setattr(_native, name, counting(counted, name, own))
    return counted


def counting(counted, name, own):
    def call(*arguments):
        counted[name] += 1
        return own(*arguments)

    return call


@pytest.mark.parametrize("mode", ["parity", "optimize"])
def test_a_plan_estimates_once_and_builds_one_problem(calls, mode):
    with quiet():
        used = planner(mode=mode)
        used.plan(model(), SHARDERS)
    assert used.last_run.lower_bound is not None or mode == "parity"
    assert used.last_run.plans > 0
    assert calls == {"estimate": 1, "Problem": 1}


def test_a_hit_estimates_its_own_options_alone(calls, tmp_path):
    cache = Cache(tmp_path)
    with quiet():
        planner(cache=cache).plan(model(), SHARDERS)
        calls.clear()
        planner(cache=cache).plan(model(), SHARDERS)
    assert calls == {"estimate": 1, "Problem": 1}


def test_a_spec_is_estimated_once_and_its_plan_once(calls, spec):
    result = fastplan.plan(spec, mode="optimize", optimize=fastplan.Optimize(move_budget=100))
    assert result.rating is not None
    assert result.certificate
    assert calls == {"estimate": 1, "Problem": 1}
