"""The modules that are measured: built from a spec, or taken from a real model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torchrec.optim
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import DataType

from fastplan.measure.inputs import feature_names, is_weighted
from fastplan.measure.settings import MeasureError
from fastplan.spec.model import ModelSpec, ModuleSpec, TableSpec

_DTYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
_LEARNING_RATE = 0.01
# `other` is what TorchRec counts as one state per weight, of which Adagrad is the usual one.
_FUSED = {
    None: torchrec.optim.SGD,
    "sgd": torchrec.optim.SGD,
    "adam": torchrec.optim.Adam,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "other": torchrec.optim.Adagrad,
}
_DENSE = {
    None: torch.optim.SGD,
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "other": torch.optim.Adagrad,
}


class Model(NamedTuple):
    """A module whose tables take no memory yet, and how TorchRec shards it."""

    module: nn.Module
    sharders: list[Any]


def build(spec: ModelSpec, target: str | None) -> Model:
    """A new model with the spec's modules: those of the function `target`, or built from the spec.

    What else a real model has is left out.
    """
    whole, sharders = None, get_default_sharders()
    if target is not None:
        from fastplan.torchrec.models import build_model

        whole, sharders, _ = build_model(target)
    root = nn.Module()
    for path in dict.fromkeys(table.module for table in spec.tables):
        module = _collection(spec, path) if whole is None else whole.get_submodule(path)
        if not path:
            return Model(module, sharders)
        _attach(root, path, module)
    return Model(root, sharders)


def _collection(spec: ModelSpec, path: str) -> nn.Module:
    tables = [table for table in spec.tables if table.module == path]
    kind = (spec.modules.get(path) or ModuleSpec()).kind
    meta = torch.device("meta")
    built: nn.Module
    if kind == "embedding_collection":
        built = EmbeddingCollection(
            tables=[EmbeddingConfig(**_config(table)) for table in tables], device=meta
        )
        parameters = built.embeddings
    else:
        built = EmbeddingBagCollection(
            tables=[EmbeddingBagConfig(**_config(table)) for table in tables],
            is_weighted=is_weighted(spec, path),
            device=meta,
        )
        parameters = built.embedding_bags
    for table in tables:
        _apply_optimizer_in_backward(
            _FUSED[table.optimizer], parameters[table.name].parameters(), {"lr": _LEARNING_RATE}
        )
    return built


def _config(table: TableSpec) -> dict[str, Any]:
    return {
        "name": table.name,
        "embedding_dim": table.dim,
        "num_embeddings": table.rows,
        "feature_names": list(feature_names(table)),
        "data_type": _DTYPES[table.dtype],
    }


def _attach(root: nn.Module, path: str, module: nn.Module) -> None:
    *above, name = path.split(".")
    for part in above:
        if part not in dict(root.named_children()):
            root.add_module(part, nn.Module())
        root = root.get_submodule(part)
    root.add_module(name, module)


def dense_optimizers(
    spec: ModelSpec, copies: Iterable[tuple[str, str]], parameters: dict[str, Any]
) -> list[Any]:
    """Optimizers of the data-parallel tables, whose updates no kernel does on the way.

    Args:
        copies: module and name of these tables.
        parameters: of the sharded model, by name.
    """
    optimizers = {(table.module, table.name): table.optimizer for table in spec.tables}
    by_kind: dict[str | None, list[Any]] = {}
    for path, name in copies:
        by_kind.setdefault(optimizers[path, name], []).append(_weight(parameters, path, name))
    return [_DENSE[kind](found, lr=_LEARNING_RATE) for kind, found in by_kind.items()]


def _weight(parameters: dict[str, Any], path: str, name: str) -> Any:
    prefix, suffix = f"{path}." if path else "", f".{name}.weight"
    for full, parameter in parameters.items():
        if full.startswith(prefix) and full.endswith(suffix):
            return parameter
    raise MeasureError(f"table {name} of module {path}: the sharded model has no such parameter")


def tensors(output: Any) -> list[Any]:
    """The tensors of a module's output that a backward pass can start from."""
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    if isinstance(output, dict):
        return [tensor for part in output.values() for tensor in tensors(part)]
    if isinstance(output, tuple | list):
        return [tensor for part in output for tensor in tensors(part)]
    values = getattr(output, "values", None)  # of KeyedTensor and JaggedTensor
    return tensors(values()) if callable(values) else []
