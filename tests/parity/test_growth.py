"""Work that grows with the model and no faster: counted, not timed. Results equal TorchRec's."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchrec.distributed.planner import enumerators
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheAlgorithm, CacheParams, KeyValueParams
from torchrec.modules.embedding_configs import DataType
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

from fastplan.torchrec import compat
from fastplan.torchrec.read.menus import Menus
from fastplan.torchrec.read.modules import _towers_of_tables

from .compare import assert_same, outcome
from .models import META, bag_collection, make_sharder, sequence_collection
from .small import MIB, assert_agree, assert_engine, cramped, small, small_tables, small_topology
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner, TorchRecPlanner


def calls_of(function: Any, call: Callable[[], Any]) -> int:
    """How often `call` calls a Python function. A wrapper would not be TorchRec's own code."""
    count = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is function.__code__

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def tower(*tables: Any, collection: Any = bag_collection) -> EmbeddingTower:
    return EmbeddingTower(collection(list(tables)), nn.Linear(4, 4, device=META))


def towers(count: int) -> EmbeddingTowerCollection:
    """Towers of two tables, the last of which both have the same name as a table before."""
    tables = small_tables(2 * count)
    pairs = [tower(*tables[i : i + 2]) for i in range(0, 2 * count, 2)]
    return EmbeddingTowerCollection([*pairs, tower(tables[0], collection=sequence_collection)])


def test_each_table_is_in_the_tower_that_torchrec_finds() -> None:
    module = towers(5)
    found = _towers_of_tables(module)
    assert len(found) == 10
    for name, index in found.items():
        assert enumerators._get_tower_index(name, module) == index


@pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")
@pytest.mark.skipif(SELF_CHECK, reason="counts calls of fastplan")
def test_towers_are_searched_once_for_all_of_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    stock = enumerators._get_tower_index
    monkeypatch.setattr(
        "fastplan.torchrec.read.modules._towers_of_tables",
        lambda module: asked.append("all") or _towers_of_tables(module),
    )
    monkeypatch.setattr(
        "fastplan.torchrec.read.modules.enumerators",
        type("Enumerators", (), {"_get_tower_index": lambda *a: asked.append("one") or stock(*a)}),
    )
    tables = small_tables(12)
    module = EmbeddingTowerCollection([tower(*tables[i : i + 2]) for i in range(0, 12, 2)])

    def build() -> Any:
        built = small(module, topology=small_topology(4, local_world_size=2))
        built.sharders[:] = [make_sharder("tower_collection", None, None)]
        return built

    _, planner = assert_agree(build)
    assert_engine(planner, "native")
    assert asked == ["all"]


@pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")
@pytest.mark.skipif(SELF_CHECK, reason="counts calls of fastplan")
def test_tables_that_differ_in_cache_size_share_their_types_and_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    constraints = {
        f"table_{i}": ParameterConstraints(
            pooling_factors=[1.5 + i],
            compute_kernels=["fused", "fused_uvm_caching"] if i % 2 else None,
            cache_params=CacheParams(load_factor=0.05 + i / 20),
        )
        for i in range(12)
    }
    asked: list[str] = []
    stock = Menus._allowed_by

    def counted(self: Any, holder: Any, name: str) -> Any:
        asked.append(name)
        return stock(self, holder, name)

    monkeypatch.setattr(Menus, "_allowed_by", counted)

    def build() -> Any:
        return small(count=12, constraints=constraints, topology=small_topology(hbm=48 * MIB))

    _, planner = assert_agree(build)
    assert_engine(planner, "native")
    assert asked == ["table_0", "table_1"]  # two lists of kernels


class Params(CacheParams):
    """Parameters of another class, which may have fields of its own."""


@pytest.mark.parametrize(
    "params",
    [
        CacheParams(CacheAlgorithm.LFU, 0.25, 7.0, DataType.FP16, True),
        KeyValueParams(ssd_storage_directory="/ssd", max_l1_cache_size=3),
        KeyValueParams(ps_hosts=(("::1", 2000),)),
        Params(load_factor=0.5),
        CacheParams(load_factor=0.5, stats=[1.5]),  # type: ignore[arg-type]
        None,
    ],
    ids=str,
)
def test_copied_parameters_are_deep_copies(params: Any) -> None:
    copied = compat.copy_params(params)
    assert type(copied) is type(params)
    assert copied == copy.deepcopy(params)
    if params is not None:
        assert copied is not params
        assert vars(copied) == vars(params)
        assert all(
            own is vars(copy.deepcopy(params))[name] or own is not vars(params)[name]
            for name, own in vars(copied).items()
        )


@pytest.mark.skipif(SELF_CHECK, reason="counts calls of fastplan")
def test_an_error_message_takes_one_placement_by_torchrec() -> None:
    def build() -> Any:
        return small(**cramped())

    expected, _ = outcome(TorchRecPlanner, build())
    records: list[Any] = []
    placements = calls_of(
        GreedyPerfPartitioner.partition, lambda: records.append(outcome(FastPlanner, build()))
    )
    assert_same(expected, records[0][0])
    assert "insufficient storage" in expected["error"]["text"]
    assert placements == 1


@pytest.mark.parametrize("hbm", [8, 24, 256])
def test_many_bins_of_many_tables_give_torchrecs_plans(hbm: int) -> None:
    def build() -> Any:
        return small(
            count=15,
            topology=small_topology(hbm=hbm * MIB),
            storage_reservation=FixedPercentageStorageReservation(0.0),
            proposer=DynamicProgrammingProposer(hbm_bins_per_device=60),
        )

    _, planner = assert_agree(build)
    assert_engine(planner, "native")


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.5])
def test_attempts_that_cost_too_much_are_refused_as_by_torchrec(tolerance: float) -> None:
    def build() -> Any:
        return small(
            count=15,
            topology=small_topology(8, hbm=2048 * MIB),
            partitioner=MemoryBalancedPartitioner(tolerance=tolerance),
            proposer=UniformProposer(),
        )

    _, planner = assert_agree(build)
    assert_engine(planner, "native")


@pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")
@pytest.mark.skipif(SELF_CHECK, reason="counts estimates of fastplan")
def test_a_cache_size_is_estimated_once_for_all_proposals_of_a_scale_up() -> None:
    tables = small_tables(10)

    def build() -> Any:
        constraints = {
            table.name: ParameterConstraints(
                sharding_types=["table_wise"],
                compute_kernels=["fused_uvm_caching"],
                cache_params=CacheParams(
                    load_factor=0.2,
                    stats=EmbeddingOffloadStats(
                        cacheability=0.05 + i / 20,
                        expected_lookups=table.rows // 2,
                        mrc_hist_counts=torch.tensor([5.0, 4.0, 3.0, 1.0]),
                        height=table.rows,
                    ),
                ),
            )
            for i, table in enumerate(tables)
        }
        return small(
            count=10,
            topology=small_topology(hbm=32 * MIB),
            storage_reservation=FixedPercentageStorageReservation(0.0),
            constraints=constraints,
            proposer=EmbeddingOffloadScaleupProposer(),
        )

    _, planner = assert_agree(build)
    assert_engine(planner, "native")
    (run,) = planner._fastplan.result.searched.runs.values()
    proposals = len(run.fresh)
    assert proposals > 5
    # The storage model needs three sizes of each table, and load() two.
    assert run.estimator.estimated <= 10 * (proposals + 4)
