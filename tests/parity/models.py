"""Modules and sharders of every kind that TorchRec's planner accepts, on the meta device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torchrec.optim
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.embeddingbag import (
    EmbeddingBagCollectionSharder,
    EmbeddingBagSharder,
)
from torchrec.distributed.fbgemm_qcomm_codec import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)
from torchrec.distributed.fp_embeddingbag import (
    FeatureProcessedEmbeddingBagCollectionSharder,
)
from torchrec.distributed.fused_embedding import FusedEmbeddingCollectionSharder
from torchrec.distributed.fused_embeddingbag import FusedEmbeddingBagCollectionSharder
from torchrec.distributed.mc_embedding import (
    ManagedCollisionEmbeddingCollectionSharder,
)
from torchrec.distributed.mc_embeddingbag import (
    ManagedCollisionEmbeddingBagCollectionSharder,
)
from torchrec.distributed.mc_modules import ManagedCollisionCollectionSharder
from torchrec.distributed.quant_embedding import QuantEmbeddingCollectionSharder
from torchrec.distributed.quant_embeddingbag import (
    QuantEmbeddingBagCollectionSharder,
    QuantFeatureProcessedEmbeddingBagCollectionSharder,
)
from torchrec.distributed.types import CommOp
from torchrec.modules.embedding_configs import (
    DataType,
    EmbeddingBagConfig,
    EmbeddingConfig,
)
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
)
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.feature_processor_ import (
    PositionWeightedModule,
    PositionWeightedModuleCollection,
)
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import (
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.quant.embedding_modules import (
    EmbeddingBagCollection as QuantEmbeddingBagCollection,
)
from torchrec.quant.embedding_modules import (
    EmbeddingCollection as QuantEmbeddingCollection,
)
from torchrec.quant.embedding_modules import (
    FeatureProcessedEmbeddingBagCollection as QuantFeatureProcessedEmbeddingBagCollection,
)

from .draw import Draw

META = torch.device("meta")
OPTIMIZERS = [
    torch.optim.SGD,
    torch.optim.Adam,
    torchrec.optim.SGD,
    torchrec.optim.Adam,
    torchrec.optim.RowWiseAdagrad,
    torch.optim.Adagrad,
]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One embedding table of an instance, whatever module will hold it."""

    name: str
    rows: int
    dim: int
    features: tuple[str, ...]
    data_type: DataType = DataType.FP32
    buckets: int | None = None
    stashed: bool = False

    @property
    def bytes(self) -> int:
        return self.rows * self.dim * 4

    def config(self, config_class: type, **overrides: Any) -> Any:
        fields = {
            "name": self.name,
            "num_embeddings": self.rows,
            "embedding_dim": self.dim,
            "feature_names": list(self.features),
            "data_type": self.data_type,
            "use_virtual_table": self.buckets is not None,
            "total_num_buckets": self.buckets,
            "stash_weights": self.stashed,
        }
        return config_class(**{**fields, **overrides})


def bags(tables: list[Table], **overrides: Any) -> list[EmbeddingBagConfig]:
    return [table.config(EmbeddingBagConfig, **overrides) for table in tables]


def sequences(tables: list[Table], **overrides: Any) -> list[EmbeddingConfig]:
    return [table.config(EmbeddingConfig, **overrides) for table in tables]


def bag_collection(tables: list[Table], weighted: bool = False) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(tables=bags(tables), is_weighted=weighted, device=META)


def sequence_collection(tables: list[Table]) -> EmbeddingCollection:
    return EmbeddingCollection(tables=sequences(tables), device=META)


def _plain_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    return nn.EmbeddingBag(tables[0].rows, tables[0].dim, device=META)


def _fused_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    return FusedEmbeddingBagCollection(
        tables=bags(tables),
        optimizer_type=draw.pick([torch.optim.SGD, torchrec.optim.RowWiseAdagrad]),
        optimizer_kwargs={"lr": 0.1},
        is_weighted=draw.chance(0.5),
        device=META,
    )


def _fused_sequence(draw: Draw, tables: list[Table]) -> nn.Module:
    return FusedEmbeddingCollection(
        tables=sequences(tables),
        optimizer_type=torch.optim.SGD,
        optimizer_kwargs={"lr": 0.1},
        device=META,
    )


def _processors(draw: Draw, tables: list[Table]) -> Any:
    features = [feature for table in tables for feature in table.features]
    if draw.chance(0.5):
        return PositionWeightedModuleCollection(dict.fromkeys(features, 10), META)
    return {name: PositionWeightedModule(10, META) for name in features}


def _processed_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    return FeatureProcessedEmbeddingBagCollection(
        bag_collection(tables, weighted=True), _processors(draw, tables)
    )


def _collisions(draw: Draw, configs: list[Any]) -> ManagedCollisionCollection:
    modules = {
        config.name: MCHManagedCollisionModule(
            zch_size=config.num_embeddings,
            device=META,
            eviction_policy=DistanceLFU_EvictionPolicy(),
            eviction_interval=2,
            buckets=draw.pick([960, 960, 480]),
        )
        for config in configs
    }
    return ManagedCollisionCollection(modules, configs)


def _collision_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    collection = bag_collection(tables)
    return ManagedCollisionEmbeddingBagCollection(
        collection, _collisions(draw, collection.embedding_bag_configs())
    )


def _collision_sequence(draw: Draw, tables: list[Table]) -> nn.Module:
    collection = sequence_collection(tables)
    return ManagedCollisionEmbeddingCollection(
        collection, _collisions(draw, collection.embedding_configs())
    )


def _tower(draw: Draw, tables: list[Table]) -> nn.Module:
    inner = draw.pick([bag_collection, sequence_collection])(tables)
    return EmbeddingTower(inner, nn.Linear(4, 4, device=META))


def _tower_collection(draw: Draw, tables: list[Table]) -> nn.Module:
    cut = draw.randint(1, max(1, len(tables) - 1))
    parts = [part for part in (tables[:cut], tables[cut:]) if part]
    return EmbeddingTowerCollection([_tower(draw, part) for part in parts])


def _quant_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    return QuantEmbeddingBagCollection(
        tables=bags(tables, data_type=draw.pick([DataType.INT8, DataType.FP16])),
        is_weighted=draw.chance(0.3),
        device=META,
        output_dtype=draw.pick([torch.float, torch.float16]),
    )


def _quant_sequence(draw: Draw, tables: list[Table]) -> nn.Module:
    return QuantEmbeddingCollection(tables=sequences(tables, data_type=DataType.INT8), device=META)


def _quant_processed_bag(draw: Draw, tables: list[Table]) -> nn.Module:
    features = [feature for table in tables for feature in table.features]
    return QuantFeatureProcessedEmbeddingBagCollection(
        tables=bags(tables, data_type=DataType.INT8),
        is_weighted=True,
        device=META,
        feature_processor=PositionWeightedModuleCollection(dict.fromkeys(features, 10), META),
    )


MODULES: dict[str, Callable[[Draw, list[Table]], nn.Module]] = {
    "bag": lambda draw, tables: bag_collection(tables),
    "weighted_bag": lambda draw, tables: bag_collection(tables, weighted=True),
    "plain_bag": _plain_bag,
    "sequence": lambda draw, tables: sequence_collection(tables),
    "fused_bag": _fused_bag,
    "fused_sequence": _fused_sequence,
    "processed_bag": _processed_bag,
    "collision_bag": _collision_bag,
    "collision_sequence": _collision_sequence,
    "tower": _tower,
    "tower_collection": _tower_collection,
    "quant_bag": _quant_bag,
    "quant_sequence": _quant_sequence,
    "quant_processed_bag": _quant_processed_bag,
}


def quantised_comms(draw: Draw) -> Any:
    """A registry of quantised collectives, some or all of them."""
    precisions = [CommType.FP16, CommType.BF16, CommType.FP8, CommType.FP32]
    return get_qcomm_codecs_registry(
        QCommsConfig(
            forward_precision=draw.pick(precisions[:3]),
            backward_precision=draw.pick(precisions),
        ),
        comm_ops=draw.subset(list(CommOp)) if draw.chance(0.5) else None,
        device=torch.device("cuda"),
    )


def make_sharder(kind: str, fused_params: dict[str, Any] | None, comms: Any) -> Any:
    """The stock sharder of one kind of module."""
    options = {"fused_params": fused_params, "qcomm_codecs_registry": comms}
    bag, sequence = EmbeddingBagCollectionSharder, EmbeddingCollectionSharder
    if kind in ("bag", "weighted_bag"):
        return bag(**options)
    if kind == "plain_bag":
        return EmbeddingBagSharder(**options)
    if kind == "sequence":
        return sequence(**options)
    if kind == "fused_bag":
        return FusedEmbeddingBagCollectionSharder(**options)
    if kind == "fused_sequence":
        return FusedEmbeddingCollectionSharder(**options)
    if kind == "processed_bag":
        return FeatureProcessedEmbeddingBagCollectionSharder(bag(**options), comms)
    if kind == "collision_bag":
        return ManagedCollisionEmbeddingBagCollectionSharder(
            bag(**options), ManagedCollisionCollectionSharder(), comms
        )
    if kind == "collision_sequence":
        return ManagedCollisionEmbeddingCollectionSharder(
            sequence(**options), ManagedCollisionCollectionSharder(), comms
        )
    if kind == "tower":
        return EmbeddingTowerSharder(**options)
    if kind == "tower_collection":
        return EmbeddingTowerCollectionSharder(**options)
    quant = {
        "quant_bag": QuantEmbeddingBagCollectionSharder,
        "quant_sequence": QuantEmbeddingCollectionSharder,
        "quant_processed_bag": QuantFeatureProcessedEmbeddingBagCollectionSharder,
    }
    return quant[kind](fused_params=fused_params)


def nest(draw: Draw, parts: list[nn.Module]) -> nn.Module:
    """A model with dense layers that holds the parts at paths of several depths."""
    root = nn.Module()
    root.over = nn.Linear(16, 8, device=META)
    for i, part in enumerate(parts):
        holder = root
        for level in range(draw.randint(0, 2)):
            name = f"level{level}_{draw.randint(0, 1)}"
            if not hasattr(holder, name):
                setattr(holder, name, nn.Module())
            holder = getattr(holder, name)
        setattr(holder, f"sparse{i}", part)
    return root


def set_optimizers(draw: Draw, module: nn.Module) -> None:
    """Mark parameters as `apply_optimizer_in_backward` does; some stay unmarked."""
    for parameter in module.parameters():
        if draw.chance(0.8):
            parameter._optimizer_classes = [draw.pick(OPTIMIZERS)]
