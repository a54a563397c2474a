"""Planning with a cache: what hits, what misses and why, and what is off."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.types import CacheParams

from fastplan import Cache, EmbeddingShardingPlanner, explain_miss
from fastplan.cache.entry import decode, encode
from fastplan.cache.stores import MemoryStore
from fastplan.model.plan import PlanRecord
from fastplan.torchrec.support import support

GIB = 1 << 30
SHARDERS = [EmbeddingBagCollectionSharder()]


def model(rows: int = 50_000, names: str = "abc") -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=64, num_embeddings=rows + i, feature_names=[f"f_{name}"]
        )
        for i, name in enumerate(names)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def topology(hbm: int = 80 * GIB, ddr: int = 128 * GIB, ranks: int = 4) -> Topology:
    return Topology(
        world_size=ranks, compute_device="cuda", hbm_cap=hbm, ddr_cap=ddr, local_world_size=2
    )


def planned(cache: Any, module: Any = None, **arguments: Any) -> tuple[Any, Any]:
    """A fresh planner's plan, and its report of the cache."""
    planner = EmbeddingShardingPlanner(
        **{"topology": topology(), "stats": [], "cache": cache, **arguments}
    )
    plan = planner.plan(module or model(), SHARDERS)
    return plan, planner.last_run.cache


@pytest.fixture
def cache() -> Cache:
    return Cache(MemoryStore())


def test_the_first_plan_is_a_miss_and_the_second_a_hit_with_the_same_plan(cache):
    first, before = planned(cache)
    second, after = planned(cache)
    assert (before.status, before.reason) == ("miss", "no entry for this request")
    assert (after.status, after.reason) == ("hit", None)
    assert first == second
    assert before.fingerprint == after.fingerprint


def test_an_entry_of_a_job_says_what_tells_it_apart_in_a_list(cache):
    planned(cache)
    planned(cache, costs="hardware", sku="h100")
    ((first,), (second,)) = (
        [decode(data).provenance for _, data in cache.store.read(key)]
        for key in sorted(cache.store.keys(), key=lambda key: _costs(cache, key), reverse=True)
    )
    assert first["model"] == second["model"] == "EmbeddingBagCollection"
    assert (first["costs"], second["costs"]) == ("torchrec", "hardware")
    assert ("sku" in first, second["sku"]) == (False, "h100")
    assert first["precision"] == "32-bit"


def _costs(cache: Any, key: str) -> str:
    ((_, data),) = cache.store.read(key)
    return str(decode(data).provenance["costs"])


def test_a_hit_leaves_everything_readable_as_after_a_search(cache):
    planned(cache)
    planner = EmbeddingShardingPlanner(topology=topology(), stats=[], cache=cache)
    planner.plan(model(), SHARDERS)
    searched = EmbeddingShardingPlanner(topology=topology(), stats=[])
    searched.plan(model(), SHARDERS)
    assert planner.last_run.rating == searched.last_run.rating
    assert [str(o) for o in planner._best_plan] == [str(o) for o in searched._best_plan]
    hit, full = (p._enumerator.last_stored_search_space for p in (planner, searched))
    assert [str(o) for o in hit] == [str(o) for o in full]
    assert (planner._num_proposals, planner._num_plans) == (0, 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"module": model(rows=60_000)},
        {"module": model(names="abd")},
        {"module": model(names="acb")},
        {"batch_size": 4096},
        {"constraints": {"a": ParameterConstraints(pooling_factors=[7.0])}},
        {"constraints": {"a": ParameterConstraints(sharding_types=["row_wise"])}},
        {"proposer": GreedyProposer()},
        {"partitioner": GreedyPerfPartitioner(balance_modules=True)},
        {"timeout_seconds": 100},
        {"deterministic": True},
        {"topology": topology(ranks=8)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_decides_the_plan_is_part_of_the_key(cache, changed):
    _, before = planned(cache)
    _, after = planned(cache, **changed)
    assert after.status == "miss"
    assert before.fingerprint != after.fingerprint


def test_host_memory_that_differs_by_megabytes_hits(cache):
    planned(cache)
    _, report = planned(cache, topology=topology(ddr=128 * GIB - 14_000_000))
    assert report.status == "hit"


@pytest.mark.parametrize(("solved", "present"), [(141, 80), (80, 141), (16, 40), (40, 16)])
def test_devices_of_another_size_never_take_the_plan(cache, solved, present):
    planned(cache, topology=topology(hbm=solved * GIB))
    _, report = planned(cache, topology=topology(hbm=present * GIB))
    assert report.status == "miss"
    assert " of HBM, but it was solved for " in report.reason
    # Both plans now lie side by side.
    for size in (solved, present):
        assert planned(cache, topology=topology(hbm=size * GIB))[1].status == "hit"


def test_a_plan_that_does_not_fit_the_devices_at_hand_is_a_miss():
    wide = Cache(MemoryStore(), capacity_tolerance=0.9)
    big = model(rows=20_000_000)
    kernels = {n: ParameterConstraints(compute_kernels=["fused"]) for n in "abc"}
    planned(wide, big, topology=topology(hbm=16 * GIB), constraints=kernels)
    _, report = planned(wide, big, topology=topology(hbm=5 * GIB), constraints=kernels)
    assert report.status == "miss"
    assert "capacity" in report.reason


def test_a_stored_plan_of_another_request_is_not_used(cache):
    _, own = planned(cache)
    _, other = planned(cache, model(names="xyz"))
    ((name, _),) = cache.store.read(own.fingerprint)
    ((_, data),) = cache.store.read(other.fingerprint)
    cache.store.write(own.fingerprint, name, data)
    _, report = planned(cache)
    assert report.status == "miss"
    assert "another request" in report.reason


def test_a_damaged_entry_is_a_miss_with_a_reason_and_is_replaced(cache):
    _, report = planned(cache)
    (name, data), *_ = cache.store.read(report.fingerprint)
    cache.store.write(report.fingerprint, name, data[:-1] + b"?")
    _, damaged = planned(cache)
    assert damaged.status == "miss"
    assert name in damaged.reason
    assert planned(cache)[1].status == "hit"


def test_a_made_up_plan_in_a_well_formed_entry_is_used_only_if_it_is_as_good(cache):
    honest, report = planned(cache)
    (name, data), *_ = cache.store.read(report.fingerprint)
    entry = decode(data)
    record = PlanRecord.unpack(entry.payload)
    rng, missed = random.Random(5), 0
    for _ in range(300):
        made_up = {
            "sharding_type": np.array(rng.choices(range(7), k=3), np.uint8),
            "kernel": np.array(rng.choices(range(14), k=3), np.uint8),
            "ranks": np.array(rng.choices(range(6), k=rng.randint(0, 8)), np.int32),
            "rating": rng.choice((record.rating, 0.0, 1.0)),
        }
        chosen = rng.sample(sorted(made_up), rng.randint(1, 4))
        payload = replace(record, **{field: made_up[field] for field in chosen}).pack()
        cache.store.write(report.fingerprint, name, encode(replace(entry, payload=payload)))
        planner = EmbeddingShardingPlanner(topology=topology(), stats=[], cache=cache)
        plan = planner.plan(model(), SHARDERS)
        rating = planner._perf_model.rate(planner._best_plan)
        assert rating == record.rating
        assert set(plan.plan[""]) == set(honest.plan[""])
        if planner.last_run.cache.status == "miss":
            missed += 1
            assert planner.last_run.cache.reason.startswith(f"entry {name}")
    assert missed > 200


class Proposer(GreedyProposer):
    """Custom by type, though it proposes the same."""


class KnownProposer(Proposer):
    def fingerprint(self) -> str:
        return "version 1"


class Partitioner(GreedyPerfPartitioner):
    def fingerprint(self) -> str:
        return "version 1"


class PerfModel(NoopPerfModel):
    def fingerprint(self) -> str:
        return "version 1"


class StorageEstimator(EmbeddingStorageEstimator):
    def fingerprint(self) -> str:
        return "version 1"


class Enumerator(EmbeddingEnumerator):
    pass


def estimated_by(kind: type) -> EmbeddingEnumerator:
    enumerator = EmbeddingEnumerator(topology=topology(), batch_size=512)
    enumerator._estimators[1] = kind(topology=topology())
    return enumerator


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (lambda: {"proposer": Proposer()}, "Proposer has no `fingerprint()`"),
        (
            lambda: {"enumerator": Enumerator(topology=topology(), batch_size=512)},
            "enumerated in Python",
        ),
    ],
    ids=["proposer", "enumerator"],
)
def test_a_custom_part_without_a_fingerprint_switches_the_cache_off(cache, arguments, reason):
    for _ in range(2):
        _, report = planned(cache, **arguments())
        assert report.status == "off"
        assert reason in report.reason


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: {"proposer": KnownProposer()},
        lambda: {"partitioner": Partitioner()},
        lambda: {"performance_model": PerfModel(topology())},
        lambda: {"enumerator": estimated_by(StorageEstimator)},
    ],
    ids=["proposer", "partitioner", "perf model", "estimator"],
)
def test_a_custom_part_with_a_fingerprint_is_cached(cache, arguments):
    first, before = planned(cache, **arguments())
    second, after = planned(cache, **arguments())
    assert (before.status, after.status) == ("miss", "hit")
    assert first == second


class ChangingPerfModel(PerfModel):
    """Rates plans otherwise than before, under the same fingerprint."""

    factor = 1.0

    def rate(self, plan: list[Any]) -> float:
        return self.factor * super().rate(plan)


def test_a_plan_that_a_python_perf_model_rates_otherwise_now_is_a_miss(cache):
    def report(factor: float) -> Any:
        perf_model = ChangingPerfModel(topology())
        perf_model.factor = factor
        return planned(cache, performance_model=perf_model)[1]

    assert [report(factor).status for factor in (1.0, 1.0)] == ["miss", "hit"]
    changed = report(1.5)
    assert changed.status == "miss"
    assert "its rating has changed" in changed.reason
    assert report(1.5).status == "hit"


def test_scaled_up_caches_come_back_with_their_sizes(cache):
    histogram = torch.linspace(100, 1, 20)

    def arguments() -> dict[str, Any]:
        return {
            "module": model(rows=2_000_000),
            "topology": topology(hbm=GIB, ddr=64 * GIB),
            "proposer": EmbeddingOffloadScaleupProposer(),
            "constraints": {
                name: ParameterConstraints(
                    sharding_types=["table_wise"],
                    compute_kernels=["fused_uvm_caching"],
                    cache_params=CacheParams(
                        load_factor=0.1,
                        stats=EmbeddingOffloadStats(0.3, 20_000, histogram, 2_000_000),
                    ),
                )
                for name in "abc"
            },
        }

    first, before = planned(cache, **arguments())
    second, after = planned(cache, **arguments())
    assert (before.status, after.status) == ("miss", "hit")
    assert str(first) == str(second)
    factors = [
        [sharding.cache_params.load_factor for sharding in plan.plan[""].values()]
        for plan in (first, second)
    ]
    assert factors[0] == factors[1]
    assert any(factor != 0.1 for factor in factors[0])


class BrokenStore(MemoryStore):
    def read(self, key: str) -> list[tuple[str, bytes]]:
        raise OSError("no route to host")


def test_a_store_that_fails_costs_a_warning_and_a_plan(caplog):
    plan, report = planned(Cache(BrokenStore()))
    assert report.status == "failed"
    assert "no route to host" in report.reason
    assert "no route to host" in caplog.text
    assert plan == planned(False)[0]


def test_the_environment_names_the_cache_and_false_overrides_it(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTPLAN_CACHE", str(tmp_path))
    assert [planned(None)[1].status for _ in range(2)] == ["miss", "hit"]
    off = planned(False)[1]
    assert (off.status, off.reason) == ("off", "no cache is configured")


@pytest.mark.parametrize("arguments", [{"timeout": 0}, {"capacity_tolerance": 1.5}])
def test_senseless_settings_are_refused(arguments, tmp_path):
    with pytest.raises(ValueError, match=f"`{next(iter(arguments))}` must be"):
        Cache(tmp_path, **arguments)


def test_a_miss_is_explained_by_the_field_that_changed(cache):
    planned(cache)
    _, report = planned(cache, model(rows=60_000))
    explained = explain_miss(report.request, Cache(cache.store._store))
    assert explained.nearest is not None
    fields = {change.field: (change.old, change.new) for change in explained.changed}
    assert fields["tables[a].rows"] == (50_000, 60_000)
    assert "tables[a].rows: 50000 -> 60000" in str(explained)


def test_a_miss_by_capacity_is_explained_by_what_the_entry_was_solved_for(cache):
    planned(cache, topology=topology(hbm=141 * GIB))
    _, report = planned(cache, topology=topology(hbm=80 * GIB))
    assert "was solved for" in str(explain_miss(report, cache))


RULES = [
    ("a", ParameterConstraints(sharding_types=["row_wise", "table_wise", "column_wise"])),
    ("b", ParameterConstraints(pooling_factors=[3.0], compute_kernels=["fused", "fused_uvm"])),
]


def key(rules):
    return planned(Cache("memory:"), constraints=dict(rules))[1].fingerprint


GOLDEN_KEYS = {
    "1.8.0": "3113948c441fa822eb81f26ee27c3e712bd0f266",
    "1.9.2": "5d12532e2f916153c7e339de2965c4ebf0813de3",
}


def key_in_a_process(seed: str) -> str:
    code = "from tests.torchrec.test_caching import RULES, key; print(key(RULES[::-1]))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.split()[-1]


def test_the_key_is_the_same_in_every_process_and_every_release():
    assert {key(RULES), key_in_a_process("1")} == {GOLDEN_KEYS[support.torchrec_name()]}


def test_a_miss_of_nothing_is_refused_by_name():
    with pytest.raises(TypeError, match=r"`request` must be .*last_run\.cache.*, not None"):
        explain_miss(None, Cache(MemoryStore()))
