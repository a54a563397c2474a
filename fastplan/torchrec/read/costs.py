"""Reads TorchRec's estimators as numbers.

Bandwidths and coefficients are read from Python once per (sharding type, kernel, load factor);
methods that a hardware configuration brings along need Python for every shard, and so do
estimators of another type: those raise NotNative.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchrec.distributed.planner import shard_estimators
from torchrec.distributed.planner.constants import BIGINT_DTYPE
from torchrec.distributed.planner.types import CollectiveType
from torchrec.distributed.types import PipelineType

from fastplan.model.request import Coefficients, CostModel, Pricing
from fastplan.model.vocabulary import SHARDING_TYPES
from fastplan.torchrec.compat import NotNative, describe
from fastplan.torchrec.differences.estimates import (
    DEFAULT_PERF_ESTIMATOR,
    MISSING,
    HardwarePerfConfig,
    perf_estimators,
)
from fastplan.torchrec.read.perf_config import check_config

_PIPELINES = {
    PipelineType.TRAIN_SPARSE_DIST: "train_sparse_dist",
    PipelineType.TRAIN_PREFETCH_SPARSE_DIST: "train_prefetch_sparse_dist",
}

_DEVICE_KINDS = {"cuda": "hbm", "mtia": "hbm", "cpu": "cpu"}

_STOCK_EVALUATORS = {
    inference: {
        kind: type(part)
        for kind, part in getattr(perf_estimators, f"{name}_EVALUATORS", {}).items()
    }
    for inference, name in ((False, "TRAINING"), (True, "INFERENCE"))
}

_BY_HOST_ROWS = frozenset({"table_row_wise", "grid_shard"})
_ALL_TYPES = frozenset(SHARDING_TYPES)

_SHARED_BY_SHARDS = (
    "bwd_compute_multiplier",
    "weighted_bwd_multiplier",
    "weighted_kernel_multiplier",
    "input_element_size",
    "min_dim_table_wise",
    "block_penalty_table_wise",
    "block_penalty_other",
    "input_read_in_bytes",
    "fetches_from_batch_inputs",
    "linear_prefetch",
)


class Estimators:
    """An enumerator's stock estimators as sources of numbers, and its custom ones.

    If a custom estimator computes perf or storage, TorchRec's default replaces it in the formulas,
    and `has_perf` or `has_storage` is False: its numbers must not be used.
    """

    def __init__(self, enumerator: Any) -> None:
        self._enumerator = enumerator
        perf, storage, self.custom = _split_estimators(enumerator._estimators)
        self.pricing: Pricing | None = None  # set if a custom cost needs no Python
        self.has_perf, self.has_storage = perf is not None, storage is not None
        known = perf or storage
        self.perf = perf or perf_estimators.EmbeddingPerfEstimatorFactory.create(
            DEFAULT_PERF_ESTIMATOR, topology=known._topology, constraints=known._constraints
        )
        self.storage = storage or shard_estimators.EmbeddingStorageEstimator(
            topology=known._topology, constraints=known._constraints
        )
        self.config = self.perf._config
        self._is_annotated = check_config(self.config).is_annotated
        self._coefficients: dict[Coefficients, int] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self._memory_bandwidths: dict[tuple[str, float | None, bool], float] = {}
        self._cost_models: dict[frozenset[str], CostModel] = {}
        stock = type(self.config).get_device_bw is HardwarePerfConfig.get_device_bw
        # TorchRec's own rule reads the load factor for these kernels only.
        self._cached = "_caching" if stock else ""

    @property
    def coefficients(self) -> tuple[Coefficients, ...]:
        return tuple(self._coefficients)

    def coefficients_of(self, sharding_type: str, kernel: str) -> int:
        """Returns the index of the pair's coefficients."""
        pair = (sharding_type, kernel)
        known = self._rows.get(pair)
        if known is None:
            found = self._ask_coefficients(sharding_type, kernel)
            row = Coefficients(
                _parse_coefficients(found.fwd),
                None if found.bwd is None else _parse_coefficients(found.bwd),
            )
            known = self._coefficients.setdefault(row, len(self._coefficients))
            self._rows[pair] = known
        return known

    def _ask_coefficients(self, sharding_type: str, kernel: str) -> Any:
        config = self.config
        is_stock = (
            type(config).get_coefficients_for_sharding
            is HardwarePerfConfig.get_coefficients_for_sharding
        )
        if is_stock and not self._is_annotated:
            # TorchRec's method searches the whole class for annotations first.
            return config.coefficients.get_coefficients(sharding_type, kernel)
        return config.get_coefficients_for_sharding(sharding_type, kernel)

    def bandwidth(self, kernel: str, cache_ratio: float | None, prefetch: bool) -> float:
        """Returns the bandwidth of the memory that a kernel reads."""
        asked = (kernel, cache_ratio if kernel.endswith(self._cached) else None, prefetch)
        if asked not in self._memory_bandwidths:
            self._memory_bandwidths[asked] = self._ask_bandwidth(*asked)
        return self._memory_bandwidths[asked]

    def _ask_bandwidth(self, kernel: str, cache_ratio: float | None, prefetch: bool) -> float:
        topology = self.perf._topology
        try:
            bandwidth = self.config.get_device_bw(
                topology.compute_device,
                kernel,
                topology.hbm_mem_bw,
                topology.ddr_mem_bw,
                topology.ssd_mem_bw,
                topology.hbm_to_ddr_mem_bw,
                cache_ratio,
                prefetch,
            )
        except ValueError as error:
            raise NotNative(str(error)) from error
        if bandwidth is None:
            raise NotNative(f"no bandwidth for kernel {kernel}")
        return _number(bandwidth)

    def cost_model(self, sharding_types: Iterable[str]) -> CostModel:
        """Returns the scalars of the formulas. Reads only the bandwidths that these types need."""
        types = frozenset(sharding_types)
        if types not in self._cost_models:
            self._cost_models[types] = self._read_cost_model(types)
        return self._cost_models[types]

    def _read_cost_model(self, types: frozenset[str]) -> CostModel:
        self._check_types(types)
        config, topology = self.config, self.perf._topology
        storage_topology = self.storage._topology
        device = storage_topology.compute_device
        coefficients = config.coefficients
        enumerator = self._enumerator
        return CostModel(
            perf_world_size=topology.world_size,
            perf_local_world_size=topology.local_world_size,
            perf_group_size=topology.intra_group_size,
            **_bandwidths(topology, types if self.pricing is None else _ALL_TYPES),
            hbm_to_ddr_bw=_number(
                topology.hbm_to_ddr_mem_bw
                if config.hbm_to_ddr_mem_bw is None
                else config.hbm_to_ddr_mem_bw
            ),
            bwd_compute_multiplier=_number(
                config.get_bwd_compute_multiplier(topology.bwd_compute_multiplier)
            ),
            weighted_bwd_multiplier=_number(
                config.get_weighted_feature_bwd_compute_multiplier(
                    topology.weighted_feature_bwd_compute_multiplier
                )
            ),
            perf_inference=bool(self.perf._is_inference),
            min_dim_table_wise=bool(getattr(config, "_use_min_dim_for_lookup", True)),
            block_penalty_table_wise=bool(getattr(config, "_use_block_usage_penalty", True)),
            block_penalty_other=bool(getattr(config, "_use_block_usage_penalty", False)),
            input_read_in_bytes=bool(getattr(config, "_use_bytes_for_input_read_size", True)),
            input_element_size=_number(getattr(config, "_input_data_type_size", BIGINT_DTYPE)),
            weighted_kernel_multiplier=_number(coefficients.weighted_kernel_multiplier),
            fetches_from_batch_inputs=bool(self.perf._use_batch_inputs_for_expected_cache_fetches),
            linear_prefetch=bool(self.perf._use_linear_regression_prefetch_estimate),
            prefetch_coefficients=self._prefetch_coefficients(coefficients.prefetch),
            storage_world_size=storage_topology.world_size,
            storage_group_size=storage_topology.intra_group_size,
            device_kind=_DEVICE_KINDS.get(device, "other"),
            weights_in_ddr=device == "cpu",
            quant_weights_in_ddr=device in {"cpu", "mtia"},
            pipeline=_PIPELINES.get(self.storage._pipeline_type, "none"),
            at_peak_memory=bool(self.storage._run_embedding_at_peak_memory),
            storage_inference=bool(self.storage._is_inference),
            layout_world_size=enumerator._world_size,
            layout_group_size=enumerator._local_world_size,
            layout_rank_memory=tuple(enumerator._device_memory_sizes or ()),
        )

    def scalars(self) -> dict[str, dict[str, Any]]:
        """Returns the numbers that all shards share, by their names in a cost's records."""
        model = self._read_cost_model(frozenset())
        bandwidths = _bandwidths(self.perf._topology, _ALL_TYPES)
        return {
            "bandwidths": {
                "hbm_to_ddr": model.hbm_to_ddr_bw,
                **{
                    name.removeprefix("bw_").removeprefix("world_"): bandwidths[name]
                    for name in bandwidths
                },
            },
            "model": {
                "prefetch": model.prefetch_coefficients,
                "inference": model.perf_inference,
                **{name: getattr(model, name) for name in _SHARED_BY_SHARDS},
            },
        }

    def _prefetch_coefficients(self, found: Any) -> tuple[float, float, float]:
        if not self.perf._use_linear_regression_prefetch_estimate:
            return (0.0, 0.0, 0.0)
        if not found:
            raise NotNative("linear prefetch without coefficients")
        return (
            _number(found.expected_num_lookups_coefficient),
            _number(found.expected_num_unique_lookups_coefficient),
            _number(found.expected_size_cache_fetches_coefficient),
        )

    def _check_types(self, types: frozenset[str]) -> None:
        inference = bool(self.perf._is_inference)
        evaluators = (
            perf_estimators.INFERENCE_EVALUATORS
            if inference
            else perf_estimators.TRAINING_EVALUATORS
        )
        for kind in types:
            if not self.config.is_sharding_type_supported(kind):
                raise NotNative(f"{describe(self.config)} does not support {kind}")
            if type(evaluators.get(kind)) is not _STOCK_EVALUATORS[inference].get(kind):
                raise NotNative(f"the evaluator of {kind} is custom")


def _split_estimators(estimators: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Returns the stock perf and storage estimators, or None, and the custom ones."""
    perf = storage = None
    custom: list[Any] = []
    for part in estimators:
        stock = stock_estimator(part)
        if stock is None:
            custom.append(part)
            continue
        if custom:
            raise NotNative(f"{describe(custom[-1])} estimates before a stock estimator")
        if stock.__class__ is shard_estimators.EmbeddingStorageEstimator:
            storage = stock
        else:
            perf = stock
    if perf is None and storage is None:
        raise NotNative("neither perf nor storage is estimated by a stock estimator")
    return perf, storage, custom


def is_stock_perf_estimator(part: Any) -> bool:
    """Whether this is TorchRec's own perf estimator, or a wrapper of it."""
    return stock_estimator(part).__class__ is perf_estimators.EmbeddingPerfEstimator


def stock_estimator(part: Any) -> Any:
    """Returns TorchRec's own estimator, without its wrapper; None for a custom one."""
    if MISSING:
        return None
    # Not type(): `native_parts` puts a class of its own in the place of TorchRec's for a while.
    wrapped = part.__class__ is shard_estimators.EmbeddingPerfEstimator
    working = part._estimator if wrapped else part
    kinds = (perf_estimators.EmbeddingPerfEstimator, shard_estimators.EmbeddingStorageEstimator)
    if working.__class__ not in kinds or "estimate" in vars(part) or "estimate" in vars(working):
        return None
    return working


def _bandwidths(topology: Any, types: frozenset[str]) -> dict[str, float]:
    """Returns the bandwidths of the collectives of these sharding types, zero for others."""
    world, local, group = topology.world_size, topology.local_world_size, topology.intra_group_size
    groups = max(1, world // group)
    wanted: dict[str, tuple[int, int, Any]] = {}
    if types - {"data_parallel"}:
        wanted["bw_world_all_to_all"] = (world, local, CollectiveType.ALL_TO_ALL)
    if "row_wise" in types:
        wanted["bw_world_reduce_scatter"] = (world, local, CollectiveType.REDUCE_SCATTER)
        wanted["bw_world_all_gather"] = (world, local, CollectiveType.ALL_GATHER)
    if "data_parallel" in types:
        wanted["bw_world_all_reduce"] = (world, local, CollectiveType.ALL_REDUCE)
    if types & _BY_HOST_ROWS:
        near = min(group, local)
        wanted["bw_group_reduce_scatter"] = (group, near, CollectiveType.REDUCE_SCATTER)
        wanted["bw_group_all_gather"] = (group, near, CollectiveType.ALL_GATHER)
        if groups > 1:
            wanted["bw_across_all_to_all"] = (groups, 1, CollectiveType.ALL_TO_ALL)
    numbers = dict.fromkeys(
        (
            "bw_world_all_to_all",
            "bw_world_reduce_scatter",
            "bw_world_all_gather",
            "bw_world_all_reduce",
            "bw_group_reduce_scatter",
            "bw_group_all_gather",
            "bw_across_all_to_all",
        ),
        0.0,
    )
    for name, (ranks, local_ranks, collective) in wanted.items():
        bandwidth = topology.comms_bandwidths.get_bw(
            world_size=ranks, local_world_size=local_ranks, collective_type=collective
        )
        numbers[name] = 0.0 if bandwidth is None else _number(bandwidth)
    return numbers


def _parse_coefficients(found: Any) -> tuple[float, float, float, float]:
    numbers = found.input_read_size_multiplier, found.lookup_size_multiplier
    more = found.embedding_output_multiplier, found.hash_size_multiplier
    return (*map(_number, numbers), *map(_number, more))  # type: ignore[return-value]


def _number(value: Any) -> float:
    """Returns a float with exactly this value. Raises NotNative if there is none.

    Other types round otherwise: numpy's float32 makes single-precision numbers of doubles.
    """
    if not isinstance(value, int | float):
        raise NotNative(f"{value!r} is a {type(value).__name__}")
    number = float(value)
    if number != value:
        raise NotNative(f"{value!r} can't be represented exactly as a double")
    return number
