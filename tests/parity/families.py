"""The families of planning instances: which part of the input space each one explores."""

from dataclasses import dataclass, field

from torchrec.modules.embedding_configs import DataType

from .models import MODULES

TRAINING_KINDS = [kind for kind in MODULES if not kind.startswith("quant")]
QUANT_KINDS = [kind for kind in MODULES if kind.startswith("quant")]


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an instance may be made of; each field is a list of choices."""

    kinds: list[str] = field(default_factory=lambda: ["bag"])
    modules: list[int] = field(default_factory=lambda: [1])
    tables: list[int] = field(default_factory=lambda: [1, 2, 4, 5, 6, 8])
    rows: tuple[float, float] = (50, 3e6)
    ranks: list[int] = field(default_factory=lambda: [2, 4, 8])
    hosts: list[int] = field(default_factory=lambda: [1, 1, 2])
    device: list[str] = field(default_factory=lambda: ["cuda"])
    memory: list[str] = field(default_factory=lambda: ["loose", "loose", "tight"])
    types: list[str] = field(default_factory=lambda: ["free", "free", "some"])
    kernels: list[str] = field(default_factory=lambda: ["free"])
    features: list[int] = field(default_factory=lambda: [1])
    dtypes: list[DataType] = field(default_factory=lambda: [DataType.FP32])
    perf: list[str] = field(default_factory=lambda: ["default"])
    reservation: list[str] = field(default_factory=lambda: ["default"])
    proposer: list[str] = field(default_factory=lambda: ["default"])
    partitioner: list[str] = field(default_factory=lambda: ["default"])
    ssd: list[int | None] = field(default_factory=lambda: [None])
    # Chances of single features.
    cache: float = 0.1
    identical: float = 0.0
    comms: float = 0.1
    optimizer: float = 0.2
    fused_params: float = 0.1
    storage: float = 0.1
    uneven: float = 0.0
    custom_bandwidth: float = 0.0
    device_group: float = 0.0
    constrained: float = 0.7
    exact_order: float = 0.1


FEW_TYPES = ["one", "two"]
FAMILIES: dict[str, Family] = {
    "default": Family(constrained=0.0, cache=0.0, optimizer=0.0, comms=0.0),
    "weighted": Family(kinds=["weighted_bag"], features=[1, 2]),
    "sequence": Family(kinds=["sequence"], features=[1, 2]),
    "fused": Family(kinds=["fused_bag", "fused_sequence"], tables=[1, 2, 4]),
    "processed": Family(kinds=["processed_bag"], types=["free", "some", "two"]),
    "collision": Family(kinds=["collision_bag", "collision_sequence"], tables=[1, 2, 5]),
    "tower": Family(kinds=["tower", "tower_collection"], ranks=[4, 8], hosts=[2, 4]),
    "quant": Family(
        kinds=QUANT_KINDS,
        perf=["wrapper", "factory"],
        storage=1.0,
        reservation=["default", "inference"],
        kernels=["free", "quant"],
        rows=(50, 3e4),
    ),
    "nested": Family(kinds=TRAINING_KINDS, modules=[2, 3], tables=[1, 2, 3]),
    "types": Family(types=["some"], constrained=1.0, ranks=[4, 8], hosts=[1, 2, 4]),
    "grid": Family(
        types=["grid"], constrained=1.0, ranks=[4, 8, 12], hosts=[2, 3, 4], kernels=["hbm"]
    ),
    "offload": Family(kernels=["offload"], cache=0.8, fused_params=0.4, memory=["tight", "loose"]),
    "keyvalue": Family(
        kernels=["keyvalue"],
        kinds=["bag", "sequence", "collision_bag"],
        types=["two", "some"],
        constrained=1.0,
        ssd=[None, 0, 10**9],
        cache=0.2,
        fused_params=0.3,
    ),
    "columns": Family(
        kernels=["keyvalue", "hbm"], types=["columns"], constrained=1.0, tables=[1, 2, 4]
    ),
    "dtypes": Family(
        kinds=["bag", "sequence"],
        dtypes=[DataType.FP32, DataType.FP16, DataType.BF16],
        comms=0.7,
        constrained=0.9,
    ),
    "pipelines": Family(storage=1.0, cache=0.4, fused_params=0.3, optimizer=0.6),
    "features": Family(kinds=["bag", "sequence"], features=[1, 2, 3, 5], constrained=1.0),
    "uneven": Family(uneven=1.0, kernels=["free", "keyvalue"], ranks=[2, 3, 5, 8]),
    "devices": Family(device=["cpu", "cpu", "mtia"], kinds=["bag", "sequence"]),
    "tight": Family(memory=["tight", "tighter"], hosts=[1, 2], tables=[4, 5, 6, 8, 12]),
    "infeasible": Family(memory=["none", "little"], device=["cuda", "cuda", "cpu"], hosts=[1, 2]),
    "ties": Family(
        identical=1.0, tables=[8, 12, 20], types=FEW_TYPES, kernels=["hbm"], constrained=0.9
    ),
    "proposers": Family(proposer=["static", "one"], memory=["loose", "tight"]),
    "dynamic": Family(proposer=["dynamic"], types=["some", "two"], tables=[2, 4, 6]),
    "scaleup": Family(
        proposer=["scaleup"], kernels=["offload"], cache=1.0, constrained=1.0, storage=0.5
    ),
    "partitioners": Family(
        partitioner=["greedy", "balanced"], modules=[1, 2], tables=[2, 4, 6], types=["some"]
    ),
    "estimators": Family(
        perf=["wrapper", "factory", "bare", "tuned", "wider"], cache=0.4, fused_params=0.3
    ),
    "bandwidth": Family(custom_bandwidth=1.0, ranks=[4, 8], hosts=[1, 2, 4]),
    "reservations": Family(
        reservation=["heuristic", "percentage", "absolute", "inference", "sku"],
        modules=[1, 2],
        tables=[1, 2],
        memory=["loose", "tight", "little"],
    ),
    "groups": Family(
        device_group=0.5, modules=[1, 2], tables=[1, 2, 4], device=["cuda", "cuda", "cpu"]
    ),
    "many_tables": Family(tables=[20, 30, 60], types=["two"], kernels=["hbm"], constrained=1.0),
    "many_ranks": Family(tables=[1, 2, 4], ranks=[16, 24, 32], hosts=[1, 2, 4], types=FEW_TYPES),
    "scaleup_failing": Family(
        proposer=["scaleup"],
        kernels=["offload"],
        cache=1.0,
        constrained=1.0,
        memory=["tighter", "little"],
    ),
    "ragged": Family(ranks=[3, 5, 6, 7], hosts=[1, 2, 3], tables=[1, 2, 4]),
}

# How much memory a rank gets, as a multiple of its even share of the whole model.
MEMORY = {
    "loose": (4.0, 40.0),
    "tight": (1.2, 2.5),
    "tighter": (0.7, 1.2),
    "little": (0.2, 0.7),
    "none": (0.0001, 0.1),
}
