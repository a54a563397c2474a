"""A training step of a sharded model's tables, as a whole or part by part.

As a whole it runs as in training. Part by part, every rank waits for the others before each part,
so that a part's time is its own work or transport, and not the wait for a slower rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torchrec import KeyedJaggedTensor
from torchrec.distributed.model_parallel import DataParallelWrapper, DistributedModelParallel
from torchrec.distributed.types import ShardedModule, ShardingEnv, ShardingPlan

from fastplan.measure.devices import Device
from fastplan.measure.models import Model, dense_optimizers, tensors
from fastplan.measure.parts import PARTS
from fastplan.measure.settings import MeasureError
from fastplan.spec.model import ModelSpec

Inputs = dict[str, Any]  # KeyedJaggedTensor by module


class _NothingDense(DataParallelWrapper):
    """There is nothing but tables, and copies of these are wrapped by their modules."""

    def wrap(self, dmp: Any, env: Any, device: Any) -> None:
        pass


class Trainer:
    """A model sharded by a plan, ready to take steps."""

    def __init__(self, model: Model, plan: ShardingPlan, spec: ModelSpec, device: Device) -> None:
        self._device = device
        self._model = DistributedModelParallel(
            model.module,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=device.torch,
            plan=plan,
            sharders=model.sharders,
            data_parallel_wrapper=_NothingDense(),
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
        """Seconds of a whole step."""
        begin = self._device.mark()
        found = []
        for path, module in self._modules.items():
            found += tensors(_arrived(module(inputs[path])))
        self._backward(found)
        end = self._device.mark()
        self._device.wait()
        return self._device.seconds(begin, end)

    def parts(self, inputs: Inputs, together: Callable[[], None]) -> dict[str, float]:
        """Seconds of each part of a step. `together` waits for all ranks."""
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
            found += tensors(timed("output_dist", _put_out, module, context, looked_up))
        timed("backward", self._backward, found)
        self._device.wait()
        return {
            part: sum(self._device.seconds(begin, end) for begin, end in pairs)
            for part, pairs in marks.items()
        }

    def _backward(self, outputs: Sequence[Any]) -> None:
        """The backward pass from gradients that are there already, and the update."""
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
            f"module {path} was not sharded: no sharder takes {type(module).__name__}"
        )
    return module


def _distributed(module: Any, context: Any, features: Any) -> Any:
    return module.input_dist(context, features).wait().wait()


def _put_out(module: Any, context: Any, looked_up: Any) -> Any:
    return _arrived(module.output_dist(context, looked_up))


def _arrived(output: Any) -> Any:
    """What a module puts out, waited for."""
    if isinstance(output, tuple):
        return tuple(_arrived(part) for part in output)
    return output.wait() if hasattr(output, "wait") else output


def to_device(batch: Any, device: Device) -> Any:
    """A drawn batch as TorchRec takes it."""
    return KeyedJaggedTensor(
        keys=list(batch.keys),
        values=torch.from_numpy(batch.ids),
        lengths=torch.from_numpy(batch.lengths),
        weights=None if batch.weights is None else torch.from_numpy(batch.weights),
    ).to(device.torch)
