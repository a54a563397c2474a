"""Optimizers that users hold for tables with dense kernels: states that they have not made yet.

Most of torch's optimizers make their states in the first step. A job that loads a checkpoint has
not made a step, so that its states must be made to be loaded.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch


class TableStateError(ValueError):
    """A table whose weights or states can't be read as shards."""


def owner_of(optimizer: Any, parameter: Any) -> Any:
    """Returns the torch optimizer that updates a parameter, in any wrapper of TorchRec's."""
    parts = getattr(optimizer, "optimizers", None)
    if isinstance(parts, list):  # a CombinedOptimizer
        found = (owner_of(part, parameter) for _, part in parts)
        return next((each for each in found if each is not None), None)
    inner = getattr(optimizer, "_optimizer", None)
    if inner is not None:
        return owner_of(inner, parameter)
    return optimizer if _group(optimizer, parameter) is not None else None


def new_states(optimizer: Any, parameter: Any) -> dict[str, torch.Tensor]:
    """Returns the states that an optimizer would make for a parameter, as new tensors.

    Raises:
        TableStateError: the optimizer can't be made again from its settings.
    """
    owner = owner_of(optimizer, parameter)
    return {} if owner is None else states_of_group(owner, _group(owner, parameter), parameter)


def states_of_group(owner: Any, group: Any, parameter: Any) -> dict[str, torch.Tensor]:
    """Returns the states that a torch optimizer would make for a parameter in one of its groups.

    An optimizer of the same class and settings makes a step with a small parameter of as many
    dimensions. This shows which states there are, and of what shape.

    Raises:
        TableStateError: the optimizer can't be made again from its settings.
    """
    sizes = [3 + 2 * dimension for dimension in range(parameter.dim())]
    small = torch.nn.Parameter(torch.zeros(sizes))
    known = inspect.signature(type(owner).__init__).parameters
    settings = {
        k: v for k, v in (group or {}).items() if k in known and k not in ("params", "fused")
    }
    try:
        probe = type(owner)([small], **settings)
        small.grad = torch.zeros_like(small)
        probe.step()
    except Exception as error:
        raise TableStateError(
            f"{type(owner).__name__} has no states yet, and can't be made from its settings "
            f"({error}); call its init_state() before you load"
        ) from error
    return {
        name: _like(parameter, value, sizes)
        for name, value in probe.state[small].items()
        if isinstance(value, torch.Tensor)
    }


def reads_step(optimizer: Any, parameter: Any) -> bool:
    """Whether the update of a parameter reads its step counter. Adagrad's does with `lr_decay`."""
    owner = owner_of(optimizer, parameter)
    group = None if owner is None else _group(owner, parameter)
    return group is None or group.get("lr_decay", 1) != 0


def _like(parameter: Any, value: torch.Tensor, small: list[int]) -> torch.Tensor:
    if value.dim() == 0 or value.numel() == 1:
        return torch.zeros_like(value)
    shape = [parameter.shape[small.index(n)] if n in small else n for n in value.shape]
    dtype = parameter.dtype if value.dtype == torch.float32 else value.dtype
    return torch.zeros(shape, dtype=dtype, device=parameter.device)


def _group(optimizer: Any, parameter: Any) -> dict[str, Any] | None:
    for group in getattr(optimizer, "param_groups", ()):
        if any(each is parameter for each in group["params"]):
            return dict(group)
    return None
