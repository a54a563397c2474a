"""fastplan behind TorchRec's planner API: the same results, and what TorchRec leaves empty."""

import inspect
import re
from importlib.util import find_spec

import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, planners
from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

import fastplan
from fastplan.cache.stores import MemoryStore
from fastplan.torchrec.api.provider import _ATTRIBUTES
from fastplan.torchrec.api.throughput import estimated_qps
from fastplan.torchrec.loader import ProtocolPlanCache
from tests.torchrec.processes import run_ranks

if find_spec("torchrec.distributed.planner.executor") is None:
    pytest.skip("this TorchRec has no planner API", allow_module_level=True)

from torchrec.distributed.planner import protocols, provider, reporter
from torchrec.distributed.planner.dry_run import DryRunOrchestrator, DryRunRequest, cli
from torchrec.distributed.planner.executor import DefaultPlannerExecutor
from torchrec.distributed.planner.provider import DefaultPlannerProvider
from torchrec.distributed.planner.types import (
    PlannerConfig,
    PlannerSessionContext,
    PlannerVariant,
    ProposerConfig,
    ShardingPlanRequest,
    StorageReservationPolicy,
)

SHARDERS = [EmbeddingBagCollectionSharder()]
# Which fields of a result a rerun may change.
TIMES = {"solve_time_ms", "estimated_qps"}


def model() -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=64, num_embeddings=rows, feature_names=[f"f{i}"]
        )
        for i, rows in enumerate((1000, 50_000, 2_000_000, 70, 10_000_000))
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def request(kind: type = ShardingPlanRequest, **more: object) -> ShardingPlanRequest:
    given = {
        "model": model(),
        "sharders": SHARDERS,
        "world_size": 4,
        "local_world_size": 2,
        "batch_size": 256,
        "planner_config": PlannerConfig(
            storage_reservation_policy=StorageReservationPolicy.FIXED_PERCENTAGE
        ),
        **more,
    }
    return kind(**given)


def dry_run(**more: object) -> DryRunRequest:
    return request(DryRunRequest, sku_list=["H100"], training_framework="apf", **more)


def context(asked: ShardingPlanRequest) -> PlannerSessionContext:
    return PlannerSessionContext(request=asked, results={})


def config(**more: object) -> PlannerConfig:
    return PlannerConfig(
        storage_reservation_policy=StorageReservationPolicy.FIXED_PERCENTAGE, **more
    )


def facts(result: object) -> dict[str, object]:
    found = {name: value for name, value in vars(result).items() if name not in TIMES}
    reason = found["planner_failure_reason"]  # has addresses of objects
    return found | {"planner_failure_reason": reason and re.sub("0x[0-9a-f]+", "", reason)}


SMALL = {"hbm_gb": 0.001, "ddr_gb": 0.001}
REQUESTS = {
    "default": {},
    "heuristical": {"planner_config": PlannerConfig(dense_tensor_estimate=1 << 20)},
    "greedy": {"planner_config": config(proposer_type="greedy")},
    "grid search": {
        "planner_config": config(proposer_config=ProposerConfig("grid_search", max_proposals=9))
    },
    "memory balanced": {"planner_config": config(partitioner_type="memory_balanced")},
    "by storage": {"planner_config": config(performance_model="storage")},
    "constraints": {"constraints": {"t1": ParameterConstraints(sharding_types=["row_wise"])}},
    "cpu": {"compute_device": "cpu", "ddr_gb": 64.0},
    "nothing fits": SMALL,
    "a function": {"model": model},
}


@pytest.mark.parametrize("case", REQUESTS)
def test_the_result_is_that_of_torchrecs_executor(case):
    asked = request(**REQUESTS[case])
    ours, theirs = fastplan.PlannerExecutor(), DefaultPlannerExecutor()
    expected, actual = (each.run("H100", context(asked)) for each in (theirs, ours))
    assert facts(actual) == facts(expected)
    assert actual.success == (case not in ("nothing fits", "grid search"))
    assert ours.runs["H100"].engine == ("mixed" if case == "by storage" else "native")


def test_the_classes_are_those_of_torchrecs_protocols(tmp_path):
    assert isinstance(fastplan.PlannerExecutor(), protocols.PlannerExecutor)
    assert isinstance(fastplan.PlannerProvider(), provider.PlannerProvider)
    assert isinstance(fastplan.PlanReporter(tmp_path), reporter.PlanReporter)


def test_the_context_is_filled_as_by_torchrecs_executor():
    asked = request(capture_search_space=True)
    ours, theirs = context(asked), context(asked)
    fastplan.PlannerExecutor().run("H100", ours)
    DefaultPlannerExecutor().run("H100", theirs)
    assert ours.search_space == theirs.search_space
    assert ours.model_arch == theirs.model_arch
    assert set(ours.timing) == set(theirs.timing)
    assert set(ours.topology_cache) == set(theirs.topology_cache)
    assert ours.warnings == []


def test_qps_is_examples_of_all_ranks_by_the_critical_path():
    asked = request()
    result = fastplan.PlannerExecutor().run("H100", context(asked))
    assert result.estimated_qps == 256 * 4 * 1000 / result.critical_path_ms
    assert DefaultPlannerExecutor().run("H100", context(asked)).estimated_qps is None


@pytest.mark.parametrize("path", [None, 0.0, -1.0, float("inf"), float("nan")])
def test_without_a_critical_path_there_is_no_qps(path):
    assert estimated_qps(512, 8, path) is None
    assert estimated_qps(512, 8, 2.0) == 2_048_000.0


def test_a_failure_and_an_empty_model_have_no_qps():
    executor = fastplan.PlannerExecutor()
    assert executor.run("H100", context(request(**SMALL))).estimated_qps is None
    empty = executor.run("H100", context(request(model=torch.nn.Linear(2, 2))))
    assert (empty.success, empty.estimated_qps) == (True, None)


def test_settings_reach_the_planner():
    store = MemoryStore()
    hits = []
    for _ in range(2):
        ctx = context(request())
        provider = fastplan.PlannerProvider(cache=fastplan.Cache(store), mode="optimize")
        executor = fastplan.PlannerExecutor(provider)
        assert executor.run("H100", ctx).success
        hits.append(ctx.cache_hit)
        assert executor.runs["H100"].lower_bound is not None
    assert hits == [{"H100": False}, {"H100": True}]


def test_an_objective_replaces_the_default_perf_model_only():
    @fastplan.plan_objective
    def total(ranks, out):
        out.rating = sum([rank.total for rank in ranks])

    executor = fastplan.PlannerExecutor(fastplan.PlannerProvider(objective=total))
    result = executor.run("H100", context(request()))
    assert executor.runs["H100"].rating > result.max_rank_perf
    assert result.estimated_qps == 256 * 4 * 1000 / result.critical_path_ms
    with pytest.raises(ValueError, match="both rate plans"):
        executor.run("H100", context(request(planner_config=config(performance_model="storage"))))


def test_every_argument_of_torchrecs_planner_is_taken_over():
    class Full(DefaultPlannerProvider):
        def build_planner(self, sku, *, topology, storage_reservation, ctx):
            self.built = super().build_planner(
                sku, topology=topology, storage_reservation=storage_reservation, ctx=ctx
            )
            self.built._callbacks = [lambda options: options]
            self.built.plan_loader = object()
            return self.built

    rules = {"t1": ParameterConstraints(pooling_factors=[2.0])}
    asked = request(constraints=rules, planner_config=config(debug=True, timeout_seconds=77))
    base, ctx = Full(), context(asked)
    provider = fastplan.PlannerProvider(base)
    planner = provider.build_planner(
        "H100",
        topology=provider.build_topology("H100", asked, ctx),
        storage_reservation=provider.build_storage_reservation("H100", asked),
        ctx=ctx,
    )
    arguments = list(inspect.signature(planners.EmbeddingShardingPlanner.__init__).parameters)
    assert list(_ATTRIBUTES) == arguments[1:]
    for name in _ATTRIBUTES.values():
        assert getattr(planner, name) is getattr(base.built, name), name
    assert (planner._timeout_seconds, planner._debug, planner._constraints) == (77, True, rules)


def test_a_setting_that_is_torchrecs_own_is_an_error():
    with pytest.raises(TypeError, match=r"unexpected setting 'batch_size'.*cache"):
        fastplan.PlannerProvider(batch_size=3)


def test_settings_reach_the_planner_under_a_patch_too():
    ctx = context(request())
    provider = fastplan.PlannerProvider(cache=fastplan.Cache(MemoryStore()))
    with fastplan.patch():
        fastplan.PlannerExecutor(provider).run("H100", ctx)
    assert ctx.cache_hit == {"H100": False}


class Another(DefaultPlannerProvider):
    """A provider with a planner of its own."""

    class Planner(planners.EmbeddingShardingPlanner):
        def plan(self, module, sharders):
            raise PlannerError("mine", PlannerErrorType.OTHER)

    def build_planner(self, sku, *, topology, storage_reservation, ctx):
        return self.Planner(topology=topology, storage_reservation=storage_reservation)


def test_another_planner_stays_with_the_reason(caplog):
    ctx = context(request())
    result = fastplan.PlannerExecutor(fastplan.PlannerProvider(Another())).run("H100", ctx)
    assert (result.success, result.planner_failure_reason) == (False, "mine")
    [reason] = ctx.warnings
    assert reason.startswith("fastplan does not plan for H100: ")
    assert "Another.Planner is not TorchRec's EmbeddingShardingPlanner" in reason
    assert reason in caplog.text


def test_a_variant_that_the_base_does_not_build_is_its_error():
    asked = request(planner_config=PlannerConfig(planner_variant=PlannerVariant.MANIFOLD))
    with pytest.raises(NotImplementedError, match="does not build planner_variant"):
        fastplan.PlannerExecutor().run("H100", context(asked))


def test_rank_0_of_a_group_plans_estimates_and_stores_for_all(tmp_path):
    ranks = [(rank, 2, tmp_path) for rank in range(2)]
    first, second = run_ranks("tests.torchrec.api_worker", ranks)
    alone = fastplan.PlannerExecutor().run("H100", context(request()))
    assert first.pop("plan") == second.pop("plan") == str(alone.sharding_plan)
    assert first == {
        "is_planning_rank": True,
        "has_qps": True,
        "reports": ["H100.json"],
        "stored": True,
    }
    assert second == {
        "is_planning_rank": False,
        "has_qps": False,
        "reports": [],
        "stored": False,
    }


def test_the_dry_run_tool_plans_with_it(capsys):
    executor = fastplan.PlannerExecutor()
    arguments = ["--sku-list", "H100,GB200", "--world-size", "2", "--num-tables", "2"]
    assert cli.main(arguments, orchestrator=DryRunOrchestrator(executor)) == 0
    assert "[OK] GB200" in capsys.readouterr().out
    assert [run.engine for run in executor.runs.values()] == ["native", "native"]


def test_plans_of_a_dry_run_are_put_into_the_plan_cache():
    cache = ProtocolPlanCache(MemoryStore())
    asked = dry_run()
    result = fastplan.PlannerExecutor(plan_cache=cache).run("H100", context(asked))
    plan, metadata = cache.get(asked.fingerprint("H100"))
    assert plan == result.sharding_plan
    assert (metadata.sku, metadata.world_size) == ("H100", 4)
    assert metadata.created_by == f"fastplan {fastplan.__version__}"
    assert metadata.extra["engine"] == "native"
    assert metadata.extra["request_hash"] == asked.request_hash


def test_a_failed_plan_is_not_put_into_the_plan_cache():
    store = MemoryStore()
    executor = fastplan.PlannerExecutor(plan_cache=ProtocolPlanCache(store))
    ctx = context(dry_run(**SMALL))
    assert not executor.run("H100", ctx).success
    assert list(store.keys()) == []
    assert ctx.warnings == []


class BrokenCache:
    def put(self, request_fingerprint, plan, metadata):
        raise OSError("no route to host")


@pytest.mark.parametrize(
    ("asked", "reason"), [(dry_run, "no route to host"), (request, "fingerprint")]
)
def test_a_plan_that_can_not_be_stored_is_a_warning(asked, reason):
    ctx = context(asked())
    assert fastplan.PlannerExecutor(plan_cache=BrokenCache()).run("H100", ctx).success
    [warning] = ctx.warnings
    assert warning.startswith("fastplan did not store the plan for H100")
    assert reason in warning
