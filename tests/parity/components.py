"""Topologies, constraints and planner parts: every stock one, and two that only bring numbers."""

from typing import Any

import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import MultiPassPrefetchConfig
from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.constants import DEFAULT_PERF_ESTIMATOR
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    EmbeddingPerfEstimatorFactory,
    EmbeddingPerfEstimatorV2,
    HardwarePerfConfig,
    PerfCoefficient,
    PrefetchCoefficients,
    bwd_coefficient,
    device_bw,
    fwd_coefficient,
    prefetch_coefficient,
)
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.types import (
    CollectiveType,
    CustomTopologyData,
    GeneralizedCommsBandwidth,
    ParameterConstraints,
    Topology,
)
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    KeyValueParams,
    PipelineType,
)
from torchrec.modules.embedding_configs import DataType

from .draw import Draw
from .models import Table

SHARDING_TYPES = [
    "data_parallel",
    "table_wise",
    "column_wise",
    "table_column_wise",
    "row_wise",
    "table_row_wise",
    "grid_shard",
]
OFFLOAD_KERNELS = ["fused", "fused_uvm", "fused_uvm_caching"]
KEY_VALUE_KERNELS = [
    "key_value",
    "ssd_virtual_table",
    "dram_virtual_table",
    "dram_ssd_virtual_table",
]
QUANT_KERNELS = ["quant", "quant_uvm", "quant_uvm_caching"]


class SteppedBandwidth(GeneralizedCommsBandwidth):
    """A custom bandwidth model: another number for every collective and group size."""

    def get_bw(
        self, local_world_size: int, world_size: int, collective_type: CollectiveType
    ) -> float:
        step = list(CollectiveType).index(collective_type) + 1
        return 1e7 * step / world_size + 3e6 * local_world_size

    @property
    def intra_host_bw(self) -> float:
        return 5.5e8

    @property
    def inter_host_bw(self) -> float:
        return 1.1e7


@device_bw(bandwidth=7.7e8, device="cuda", compute_kernel=["fused", "fused_uvm"])
class TunedPerfConfig(HardwarePerfConfig):
    """A hardware configuration that changes coefficients and no formula."""

    @fwd_coefficient(sharding_type=["table_wise", "column_wise"])
    def forward_by_table(self) -> PerfCoefficient:
        return PerfCoefficient(
            input_read_size_multiplier=3.5,
            lookup_size_multiplier=0.9,
            embedding_output_multiplier=1.3,
            hash_size_multiplier=0.01,
        )

    @bwd_coefficient(sharding_type=["table_wise", "row_wise"])
    def backward(self) -> PerfCoefficient:
        return PerfCoefficient(lookup_size_multiplier=2.2, hash_size_multiplier=0.003)

    @prefetch_coefficient()
    def prefetch(self) -> PrefetchCoefficients:
        return PrefetchCoefficients(
            expected_num_lookups_coefficient=4.3e-07,
            expected_num_unique_lookups_coefficient=1.1e-05,
            expected_size_cache_fetches_coefficient=1.3e-07,
        )


class WiderPerfConfig(EmbeddingPerfEstimatorConfig):
    """The default configuration with other plain attributes."""

    hbm_mem_bw = 1.9e9
    _bwd_compute_multiplier = 2.75
    _default_output_data_type_size = 4.0


def make_topology(
    draw: Draw,
    *,
    ranks: int,
    hosts: int,
    device: str = "cuda",
    capacity: int,
    uneven: bool = False,
    custom_bandwidth: bool = False,
    ssd: int | None = None,
) -> Topology:
    """A topology whose HBM (DDR on a CPU) is about `capacity` bytes per rank."""
    local = max(1, ranks // hosts)
    options: dict[str, Any] = {"local_world_size": local}
    if hosts >= 4 and draw.chance(0.4):
        options["pod_size"] = 2
    elif draw.chance(0.1):
        options["pod_size"] = 1
    main, other = ("ddr_cap", "hbm_cap") if device == "cpu" else ("hbm_cap", "ddr_cap")
    options[main] = capacity
    if draw.chance(0.5):
        options[other] = int(draw.magnitude(0.2, 20) * capacity)
    if ssd is not None:
        options["ssd_cap"] = ssd
    if uneven:
        names = draw.subset(["hbm_cap", "ddr_cap"])
        scale = {name: [draw.uniform(0.5, 1.5) for _ in range(ranks)] for name in names}
        options["custom_topology_data"] = CustomTopologyData(
            {
                name: [max(1, int(capacity * factor)) for factor in factors]
                for name, factors in scale.items()
            },
            world_size=ranks,
        )
    if draw.chance(0.4):
        bandwidths = ["hbm_mem_bw", "ddr_mem_bw", "hbm_to_ddr_mem_bw", "ssd_mem_bw"]
        for name in draw.subset([*bandwidths, "intra_host_bw", "inter_host_bw"]):
            options[name] = draw.magnitude(1e5, 1e9)
        options["bwd_compute_multiplier"] = draw.pick([2, 1.7, 2.5])
        options["weighted_feature_bwd_compute_multiplier"] = draw.pick([1, 1.25])
        options["uneven_sharding_perf_multiplier"] = draw.pick([1.0, 1.5])
    if custom_bandwidth:
        options["generalized_comms_bandwidths"] = SteppedBandwidth()
    return Topology(world_size=ranks, compute_device=device, **options)


def cache_params(draw: Draw, table: Table, with_stats: bool) -> CacheParams:
    """Cache settings of one table; the scale-up proposer needs the statistics."""
    stats = None
    if with_stats:
        histogram = [float(draw.randint(0, 100)) for _ in range(draw.randint(1, 12))]
        stats = EmbeddingOffloadStats(
            cacheability=draw.uniform(0.05, 0.95),
            expected_lookups=draw.randint(1, 4 * table.rows),
            mrc_hist_counts=torch.tensor(histogram),
            height=table.rows,
        )
    return CacheParams(
        algorithm=draw.pick([None, CacheAlgorithm.LRU]),
        load_factor=draw.pick([0.1, 0.25, 0.5, draw.uniform(0.01, 0.99)])
        if with_stats or draw.chance(0.7)
        else None,
        reserved_memory=draw.pick([None, 1.0]),
        precision=draw.pick([None, DataType.FP16]),
        prefetch_pipeline=draw.pick([None, False, True]),
        stats=stats,
        multipass_prefetch_config=MultiPassPrefetchConfig(num_passes=draw.randint(1, 5))
        if draw.chance(0.3)
        else None,
    )


def key_value_params(draw: Draw) -> KeyValueParams:
    return KeyValueParams(
        l2_cache_size=draw.pick([None, 1]),
        max_l1_cache_size=draw.pick([None, 1, 16, 400]),
        ssd_storage_directory=draw.pick([None, "ssd"]),
    )


def feature_loads(draw: Draw, table: Table) -> dict[str, Any]:
    """Pooling factors and their companions, one per feature, ints and floats."""
    count = len(table.features)
    number = draw.pick(
        [
            lambda: round(draw.magnitude(0.1, 200), 3),
            lambda: draw.randint(1, 100),
            lambda: draw.uniform(0.5, 60.0),
        ]
    )
    loads: dict[str, Any] = {"pooling_factors": [number() for _ in range(count)]}
    if draw.chance(0.3):
        loads["num_poolings"] = [draw.pick([1, 1.0, 2.5, 3.0]) for _ in range(count)]
    if draw.chance(0.3):
        loads["batch_sizes"] = [draw.pick([1, 64, 500, 512, 2048]) for _ in range(count)]
    return loads


def placement_flags(draw: Draw) -> dict[str, Any]:
    """Settings that the plan must carry through unchanged."""
    return {
        "enforce_hbm": draw.pick([None, True, False]),
        "stochastic_rounding": draw.pick([None, True]),
        "bounds_check_mode": draw.pick([None, BoundsCheckMode.WARNING]),
        "feature_names": draw.pick([None, ["a", "b"]]),
        "output_dtype": draw.pick([None, DataType.FP16, DataType.BF16, DataType.INT8]),
        "is_weighted": draw.chance(0.2),
    }


def make_constraints(draw: Draw, table: Table, **fields: Any) -> ParameterConstraints:
    flags = placement_flags(draw) if draw.chance(0.3) else {}
    return ParameterConstraints(**{**feature_loads(draw, table), **flags, **fields})


def perf_estimator(
    draw: Draw, style: str, topology: Topology, constraints: Any, inference: bool
) -> Any:
    """A performance estimator; `tuned` and `wider` carry a custom configuration."""
    if style == "wrapper":
        return EmbeddingPerfEstimator(topology, constraints, is_inference=inference)
    if style == "factory":
        return EmbeddingPerfEstimatorFactory.create(
            DEFAULT_PERF_ESTIMATOR,
            is_inference=inference,
            topology=topology,
            constraints=constraints,
            use_batch_inputs_for_expected_cache_fetches=draw.chance(0.5),
        )
    if style == "bare":
        return EmbeddingPerfEstimatorV2(topology, constraints, is_inference=inference)
    return EmbeddingPerfEstimatorFactory.create_with_config(
        {"tuned": TunedPerfConfig, "wider": WiderPerfConfig}[style](),
        is_inference=inference,
        topology=topology,
        constraints=constraints,
        use_linear_regression_prefetch_estimate=style == "tuned",
    )


def storage_estimator(
    draw: Draw, topology: Topology, constraints: Any, inference: bool
) -> EmbeddingStorageEstimator:
    return EmbeddingStorageEstimator(
        topology,
        constraints,
        pipeline_type=draw.pick(list(PipelineType)),
        run_embedding_at_peak_memory=draw.chance(0.5),
        is_inference=inference,
    )


def make_proposers(draw: Draw, style: str) -> Any:
    """One proposer or a list of them; None leaves the planner's default list."""
    greedy = [
        lambda: GreedyProposer(),
        lambda: GreedyProposer(use_depth=False),
        lambda: GreedyProposer(use_depth=draw.chance(0.5), threshold=draw.randint(1, 9)),
        lambda: UniformProposer(use_depth=draw.chance(0.5)),
        lambda: GridSearchProposer(max_proposals=draw.pick([10, 300])),
    ]
    if style == "static":
        return [make() for make in draw.subset(greedy)]
    if style == "one":
        return draw.pick(greedy)()
    if style == "dynamic":
        first = DynamicProgrammingProposer(hbm_bins_per_device=draw.pick([1, 10, 30]))
        return [first, draw.pick(greedy)()] if draw.chance(0.5) else first
    if style == "scaleup":
        first = EmbeddingOffloadScaleupProposer(use_depth=draw.chance(0.7))
        return [first, draw.pick(greedy)()] if draw.chance(0.5) else first
    return None


def make_partitioner(draw: Draw, style: str) -> Any:
    if style == "greedy":
        return GreedyPerfPartitioner(
            sort_by=draw.pick(list(SortBy)), balance_modules=draw.chance(0.5)
        )
    if style == "balanced":
        return MemoryBalancedPartitioner(
            max_search_count=draw.pick([1, 5, 10]),
            tolerance=draw.pick([0.0, 0.02, 0.5]),
            balance_modules=draw.chance(0.5),
        )
    return None


def make_reservation(draw: Draw, style: str, capacity: int) -> Any:
    reservations = storage_reservations
    if style == "heuristic":
        return reservations.HeuristicalStorageReservation(
            percentage=draw.pick([0.0, 0.15, 0.4]),
            parameter_multiplier=draw.pick([6.0, 1.5]),
            dense_tensor_estimate=draw.pick([None, capacity // 50]),
        )
    if style == "percentage":
        return reservations.FixedPercentageStorageReservation(draw.pick([0.0, 0.1, 0.33]))
    if style == "absolute" and hasattr(reservations, "FixedAbsoluteStorageReservation"):
        return reservations.FixedAbsoluteStorageReservation(capacity // 20)
    if style == "inference":
        return reservations.InferenceStorageReservation(
            percentage=draw.pick([0.0, 0.25]),
            dense_tensor_estimate=draw.pick([None, capacity // 100]),
        )
    if style == "sku" and hasattr(reservations, "SKUAwareStorageReservation"):
        return reservations.SKUAwareStorageReservation(
            margin_bytes=capacity // 10,
            runtime_overhead_bytes=draw.pick([0, capacity // 30]),
            model_base_bytes=draw.pick([None, capacity // 8]),
        )
    return None
