"""Small models that reach every part of planning, for the self-check.

Only what this TorchRec has is used: a class, argument or kernel that it lacks leaves its case out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from torch import nn

from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.torchrec.support.watch import ESTIMATES, PACKAGE, PARTITIONERS, RATING

MIB = 1024**2
_VIRTUAL = ("ssd_virtual_table", "dram_virtual_table", "dram_ssd_virtual_table")


class Inputs(NamedTuple):
    """The arguments of one plan."""

    module: Any
    sharders: list[Any]
    arguments: dict[str, Any]  # of the planner's constructor


@dataclass(frozen=True, slots=True)
class Case:
    """A model to plan with both planners.

    Attributes:
        part: what falls back if the plans differ, although the options are the same.
        name: what the case is about.
        make: returns new inputs, the same each time.
        searches: False to compare only the options and their estimates.
    """

    part: str
    name: str
    make: Callable[[], Inputs]
    searches: bool = True


class Unavailable(Exception):
    """This TorchRec has no such part."""


def cases(seed: int = 0) -> Iterator[Case]:
    """Yields the cases of one draw."""
    for device in ("cuda", "cpu"):
        yield Case(ESTIMATES, f"bags on {device}", _Drawn(seed, device=device), searches=False)
    yield Case(ESTIMATES, "sequences", _Drawn(seed + 1, kind="sequence"), searches=False)
    yield Case(ESTIMATES, "all kernels", _Drawn(seed, tables=2, kernels=True), searches=False)
    yield Case(ESTIMATES, "prefetching caches", _Drawn(seed, cached=True), searches=False)
    yield Case(RATING, "default search", _Drawn(seed, tables=2))
    yield Case(RATING, "tight memory", _Drawn(seed, hbm=3 * MIB, few_types=True))
    yield Case(RATING, "no plan", _Drawn(seed, tables=2, hbm=1024))
    for name, make in _PROPOSERS.items():
        cached = name == "EmbeddingOffloadScaleupProposer"  # which is slow
        inputs = _Drawn(
            seed + 2,
            proposer=(name, make),
            cached=cached,
            few_types=True,
            tables=2 if cached else 3,
        )
        yield Case(name, name, inputs)
    for name, arguments in _PARTITIONERS:
        inputs = _Drawn(seed + 3, partitioner=(name, arguments), few_types=True)
        yield Case(PARTITIONERS, f"{name} {arguments or ''}".strip(), inputs)


_PROPOSERS: dict[str, dict[str, Any]] = {
    "GreedyProposer": {"use_depth": False},
    "UniformProposer": {},
    "GridSearchProposer": {"max_proposals": 300},
    "DynamicProgrammingProposer": {"hbm_bins_per_device": 20},
    "EmbeddingOffloadScaleupProposer": {},
}
_PARTITIONERS: list[tuple[str, dict[str, Any]]] = [
    ("GreedyPerfPartitioner", {"sort_by": "PERF", "balance_modules": True}),
    ("MemoryBalancedPartitioner", {}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    device: str = "cuda"
    kind: str = "bag"
    tables: int = 3
    hbm: int = 64 * MIB
    kernels: bool = False
    cached: bool = False
    few_types: bool = False
    proposer: tuple[str, dict[str, Any]] | None = None
    partitioner: tuple[str, dict[str, Any]] | None = None


class _Drawn:
    """Makes the inputs of a case from a seed."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self._seed = seed
        self._settings = _Settings(**settings)

    def __call__(self) -> Inputs:
        """Returns new inputs. Raises Unavailable if this TorchRec can't make them."""
        try:
            return self._make(random.Random(self._seed))
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise Unavailable(str(error)) from error

    def _make(self, draw: random.Random) -> Inputs:
        wanted = self._settings
        names = [f"table_{number}" for number in range(wanted.tables)]
        module = nn.ModuleDict({"sparse": _collection(wanted.kind, names, draw)})
        arguments: dict[str, Any] = {
            "topology": _name("types", "Topology")(
                world_size=4,
                local_world_size=2,
                compute_device=wanted.device,
                hbm_cap=wanted.hbm,
                ddr_cap=512 * MIB,
            ),
            "batch_size": draw.choice([64, 512]),
            "constraints": {name: self._constraint(draw) for name in names},
            "storage_reservation": _name(
                "storage_reservations", "FixedPercentageStorageReservation"
            )(percentage=0.1),
            "stats": [],
        }
        if wanted.proposer is not None:
            name, given = wanted.proposer
            arguments["proposer"] = _name("proposers", name)(**given)
        if wanted.partitioner is not None:
            name, given = wanted.partitioner
            if "sort_by" in given:
                given = {**given, "sort_by": _name("partitioners", "SortBy")[given["sort_by"]]}
            arguments["partitioner"] = _name("partitioners", name)(**given)
        return Inputs(module, [_sharder(wanted.kind)], arguments)

    def _constraint(self, draw: random.Random) -> Any:
        wanted = self._settings
        fields: dict[str, Any] = {
            "pooling_factors": [round(draw.uniform(0.5, 40.0), 2)],
            "is_weighted": draw.random() < 0.5,
        }
        if draw.random() < 0.5:
            fields["min_partition"] = draw.choice([4, 8, 32])
        if wanted.few_types:
            fields["sharding_types"] = ["table_wise", "row_wise", "column_wise"]
        if wanted.kernels:
            fields["compute_kernels"] = [kernel for kernel in KERNELS if kernel not in _VIRTUAL]
            fields["sharding_types"] = list(SHARDING_TYPES)
        if wanted.cached:
            types = import_module("torchrec.distributed.types")
            fields["compute_kernels"] = ["fused", "fused_uvm_caching"]
            fields["cache_params"] = types.CacheParams(
                load_factor=round(draw.uniform(0.05, 0.6), 3), stats=_statistics()
            )
        return _name("types", "ParameterConstraints")(**fields)


def _name(module: str, name: str) -> Any:
    return getattr(import_module(f"{PACKAGE}.{module}"), name)


def _collection(kind: str, names: list[str], draw: random.Random) -> Any:
    modules = import_module("torchrec.modules.embedding_modules")
    configs = import_module("torchrec.modules.embedding_configs")
    config = configs.EmbeddingBagConfig if kind == "bag" else configs.EmbeddingConfig
    collection = modules.EmbeddingBagCollection if kind == "bag" else modules.EmbeddingCollection
    sequence = {} if kind == "bag" else {"embedding_dim": 64}  # one for all tables of a collection
    tables = []
    for name in names:
        fields = {
            "name": name,
            "num_embeddings": draw.randint(50, 30_000),
            "embedding_dim": draw.choice([16, 48, 128, 256]),
            "feature_names": [f"{name}_feature"],
            **sequence,
        }
        if draw.random() < 0.3:
            fields["data_type"] = configs.DataType.FP16
        tables.append(config(**fields))
    return collection(tables=tables, device=import_module("torch").device("meta"))


def _sharder(kind: str) -> Any:
    if kind == "bag":
        sharders = import_module("torchrec.distributed.embeddingbag")
        return sharders.EmbeddingBagCollectionSharder()
    return import_module("torchrec.distributed.embedding").EmbeddingCollectionSharder()


def _statistics() -> Any:
    """Returns cache statistics with a simple miss-rate curve."""
    base = import_module("torchrec.distributed.types").CacheStatistics

    class Statistics(base):  # type: ignore[misc, valid-type]
        @property
        def expected_lookups(self) -> float:
            return 1000.0

        @property
        def cacheability(self) -> float:
            return 0.3

        def expected_miss_rate(self, clf: float) -> float:
            return (1.0 - clf) ** 2

    return Statistics()
