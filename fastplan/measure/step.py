"""The modules that are measured, and a training step of their tables.

As a whole, a step runs as in training. Part by part, every rank waits for the others before each
part, so that the time of a part is its own work or transport, and not the wait for a slower rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torchrec.optim
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    KeyedJaggedTensor,
)
from torchrec.distributed.model_parallel import DataParallelWrapper, DistributedModelParallel
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardedModule, ShardingEnv, ShardingPlan
from torchrec.modules.embedding_configs import DataType

from fastplan.measure.devices import Device
from fastplan.measure.inputs import feature_names, is_weighted
from fastplan.measure.settings import PARTS, MeasureError
from fastplan.spec.model import ModelSpec, ModuleSpec, TableSpec

_DTYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
_LEARNING_RATE = 0.01
# `other` has one state per weight in TorchRec; Adagrad is the usual one.
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
    """A module whose tables use no memory yet, and its sharders."""

    module: nn.Module
    sharders: list[Any]


def build(spec: ModelSpec, target: str | None) -> Model:
    """Builds a new model with the spec's modules, without the other parts of a real model.

    Args:
        spec: The model.
        target: package.module:function of a real model; None builds the modules from the spec.
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
    """Returns the optimizers of data-parallel tables, which no kernel updates.

    Args:
        spec: The model.
        copies: Module and name of these tables.
        parameters: Parameters of the sharded model, by name.
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
    """Returns the tensors of a module's output that a backward pass can start from."""
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    if isinstance(output, dict):
        return [tensor for part in output.values() for tensor in tensors(part)]
    if isinstance(output, tuple | list):
        return [tensor for part in output for tensor in tensors(part)]
    values = getattr(output, "values", None)  # of KeyedTensor and JaggedTensor
    return tensors(values()) if callable(values) else []


Inputs = dict[str, Any]  # KeyedJaggedTensor by module


class _NoDataParallel(DataParallelWrapper):
    """Does nothing: the model has only tables, and their modules wrap data-parallel ones."""

    def wrap(self, dmp: Any, env: Any, device: Any) -> None:
        pass


class Trainer:
    """A model that is sharded by a plan and can take training steps."""

    def __init__(self, model: Model, plan: ShardingPlan, spec: ModelSpec, device: Device) -> None:
        self._device = device
        self._model = DistributedModelParallel(
            model.module,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=device.torch,
            plan=plan,
            sharders=model.sharders,
            data_parallel_wrapper=_NoDataParallel(),
        )
        root = self._model.module
        self._modules = {path: _sharded(root, path) for path in plan.plan}
        copies = [
            (path, name)
            for path, tables in plan.plan.items()
            for name, table in tables.items()
            if table.sharding_type == "data_parallel"
        ]
        self._optimizers = dense_optimizers(spec, copies, dict(root.named_parameters()))
        self._gradients: dict[Any, Any] = {}

    def step(self, inputs: Inputs) -> float:
        """Returns the seconds of a whole step."""
        begin = self._device.mark()
        found = []
        for path, module in self._modules.items():
            found += tensors(_wait_for_output(module(inputs[path])))
        self._backward(found)
        end = self._device.mark()
        self._device.wait()
        return self._device.seconds(begin, end)

    def parts(self, inputs: Inputs, together: Callable[[], None]) -> dict[str, float]:
        """Returns the seconds of each part of a step. `together` waits for all ranks."""
        found: list[Any] = []
        marks: dict[str, list[tuple[Any, Any]]] = {part: [] for part in PARTS}

        def timed(part: str, work: Callable[..., Any], *arguments: Any) -> Any:
            self._device.wait()
            together()
            begin = self._device.mark()
            result = work(*arguments)
            marks[part].append((begin, self._device.mark()))
            return result

        for path, module in self._modules.items():
            context = module.create_context()
            received = timed("input_dist", _distributed, module, context, inputs[path])
            looked_up = timed("lookup", module.compute, context, received)
            found += tensors(timed("output_dist", _run_modules, module, context, looked_up))
        timed("backward", self._backward, found)
        self._device.wait()
        return {
            part: sum(self._device.seconds(begin, end) for begin, end in pairs)
            for part, pairs in marks.items()
        }

    def _backward(self, outputs: Sequence[Any]) -> None:
        """Runs the backward pass with constant gradients, and the update."""
        torch.autograd.backward(outputs, [self._gradient(tensor) for tensor in outputs])
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _gradient(self, output: Any) -> Any:
        key = output.shape, output.dtype
        if key not in self._gradients:
            self._gradients[key] = torch.full_like(output, 1e-3, requires_grad=False)
        return self._gradients[key]


def _sharded(root: Any, path: str) -> Any:
    module = root.get_submodule(path)
    if not isinstance(module, ShardedModule):
        raise MeasureError(
            f"module {path} was not sharded: no sharder accepts {type(module).__name__}"
        )
    return module


def _distributed(module: Any, context: Any, features: Any) -> Any:
    return module.input_dist(context, features).wait().wait()


def _run_modules(module: Any, context: Any, looked_up: Any) -> Any:
    return _wait_for_output(module.output_dist(context, looked_up))


def _wait_for_output(output: Any) -> Any:
    """Waits for the output of a module and returns it."""
    if isinstance(output, tuple):
        return tuple(_wait_for_output(part) for part in output)
    return output.wait() if hasattr(output, "wait") else output


def to_device(batch: Any, device: Device) -> Any:
    """Returns a generated batch as TorchRec's input on a device."""
    return KeyedJaggedTensor(
        keys=list(batch.keys),
        values=torch.from_numpy(batch.ids),
        lengths=torch.from_numpy(batch.lengths),
        weights=None if batch.weights is None else torch.from_numpy(batch.weights),
    ).to(device.torch)
