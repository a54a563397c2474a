"""Optimizers of tables that move: learning rates, steps, and the optimizer that the user holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torchrec.optim.fused import FusedOptimizer, FusedOptimizerModule
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper, OptimizerWrapper

from fastplan.torchrec.dense_optimizer import states_of_group
from fastplan.torchrec.table_state import STEP, Table

_HYPER_PARAMETERS = ("eps", "beta1", "beta2", "weight_decay")


class FusedSettings(NamedTuple):
    """What a fused kernel has beside tensors with a number for each row or weight."""

    lr: float
    group: dict[str, Any]  # the entries of its parameter group
    hyper: dict[str, float]
    step: int


def fused_settings(path: str, module: Any) -> dict[tuple[str, str], FusedSettings]:
    """Returns the settings of the tables with a fused kernel of this rank, by path and name."""
    found = {}
    for kernel in _fused_kernels(module):
        inner, [group] = kernel.emb_module, kernel.fused_optimizer.param_groups
        known = inner.optimizer_args._asdict()
        settings = FusedSettings(
            inner.get_learning_rate(),
            {name: value for name, value in group.items() if name != "params"},
            {name: known[name] for name in _HYPER_PARAMETERS if name in known},
            int(inner.iter.item()),
        )
        for table in kernel.config.embedding_tables:
            found[path, table.name] = settings
    return found


def apply_settings(
    path: str,
    module: Any,
    known: Mapping[tuple[str, str], FusedSettings],
    dense: Mapping[tuple[str, str], tuple[float, int]],
) -> None:
    """Gives the fused kernels of a new module the settings that their tables had.

    Args:
        path: the path of the module.
        module: the new module.
        known: settings of all tables that had a fused kernel, by path and name.
        dense: learning rate and step of the tables that had a dense kernel.

    Raises:
        ValueError: tables that share a kernel now had different settings.
    """
    for kernel in _fused_kernels(module):
        names = list(dict.fromkeys(table.name for table in kernel.config.embedding_tables))
        had = {name: known[path, name] for name in names if (path, name) in known}
        inner, [group] = kernel.emb_module, kernel.fused_optimizer.param_groups
        if not had:
            lr, step = dense.get((path, names[0]), (None, 0))
            settings = FusedSettings(group["lr"] if lr is None else lr, {}, {}, step)
            settings = settings._replace(group={"lr": settings.lr})
        else:
            settings = _agreed(path, had)
        group.update(settings.group)
        inner.set_learning_rate(settings.lr)
        if changed := {n: v for n, v in settings.hyper.items() if _differs(inner, n, v)}:
            inner.update_hyper_parameters(changed)
        inner.iter.fill_(settings.step)
        for name in names:
            for own in getattr(_parameter(module, name), "_in_backward_optimizers", ()):
                for each in own.param_groups:
                    each["lr"] = settings.group.get("lr", settings.lr)


def _agreed(path: str, had: Mapping[str, FusedSettings]) -> FusedSettings:
    (first, settings), *others = had.items()
    for name, other in others:
        if other._replace(step=settings.step) != settings:
            raise ValueError(
                f"tables {path}.{first} and {path}.{name} would share a kernel, but their "
                f"optimizers have different settings ({settings.group} and {other.group}); "
                "give both the same learning rate, or keep them apart with another sharding type"
            )
    # Kernels of one module count the same batches.
    return settings._replace(step=max(each.step for each in had.values()))


def _differs(inner: Any, name: str, value: float) -> bool:
    return bool(getattr(inner.optimizer_args, name) != value)


def _fused_kernels(module: Any) -> Iterator[Any]:
    for lookup in module._lookups:
        for each in lookup.modules():
            if isinstance(each, FusedOptimizerModule) and hasattr(each, "emb_module"):
                yield each


def _parameter(module: Any, name: str) -> Any:
    holder = getattr(module, "embedding_bags", None)
    return (module.embeddings if holder is None else holder)[name].weight


class DenseOptimizer:
    """The optimizer of tables with dense kernels, which the user holds; it may be None.

    The optimizer object stays. Its groups get the new parameters in the place of the old ones.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._leaves = [*_leaves(optimizer)]
        self._saved: list[tuple[list[list[Any]], dict[Any, Any], dict[str, Any] | None]] = []
        self._wrappers: list[tuple[Any, dict[str, Any]]] = []

    def learning_rate(self, parameter: Any) -> float | None:
        """Returns the learning rate of a parameter; None if the optimizer does not have it."""
        place = self._place(parameter)
        return None if place is None else float(place[1]["lr"])

    def new_states(
        self, table: Table, names: Sequence[str], step: float, old: Any
    ) -> dict[str, torch.Tensor]:
        """Returns memory for the states of a table with a dense kernel, as the optimizer has it.

        Args:
            table: the new table.
            names: the states that the table had.
            step: the step that the table's optimizer has reached.
            old: the table's old parameter.

        Raises:
            ValueError: the optimizer does not have these states.
        """
        if not names and not step:
            return {}
        leaf, group = self._place(old) or self._default_place()
        owner = leaf._optimizer if isinstance(leaf, KeyedOptimizerWrapper) else leaf
        made = states_of_group(owner, group, table.parameter)
        if STEP in made:
            made[STEP].fill_(step)
        lost = sorted({*names} - {*made, STEP})
        if lost:
            raise ValueError(
                f"table {table.path}.{table.name}: its optimizer state `{lost[0]}` has no place "
                f"in a {type(owner).__name__}, which optimizes tables with dense kernels"
            )
        return made if names else {}

    def replace(
        self, changes: Sequence[tuple[str, Any, Any]], states: Mapping[Any, dict[str, Any]]
    ) -> None:
        """Gives the optimizer the new parameters.

        Args:
            changes: key, old parameter or None, and new parameter or None, by table.
            states: the states of new parameters.
        """
        self._saved = [_contents(leaf) for leaf in self._leaves]
        self._wrappers = [*_wrappers(self._optimizer)]
        for key, old, new in changes:
            place = None if old is None else self._place(old)
            if place is None and (new is None or old is not None):
                continue  # a table with a fused kernel, or one that is not trained
            leaf, group = place or self._default_place()
            if place is not None:
                at = next(i for i, each in enumerate(group["params"]) if each is old)
                group["params"][at : at + 1] = [] if new is None else [new]
                leaf.state.pop(old, None)
                key = _key_of(leaf, old) or key
            else:
                group["params"].append(new)
            _set_key(leaf, key, new)
            if new is not None and states.get(new):
                leaf.state[new] = dict(states[new])
        _refresh(self._wrappers)

    def undo(self) -> None:
        """Undoes `replace`."""
        for leaf, (groups, state, params) in zip(self._leaves, self._saved, strict=False):
            for group, before in zip(leaf.param_groups, groups, strict=True):
                group["params"][:] = before
            leaf.state.clear()
            leaf.state.update(state)
            if params is not None:
                leaf.params = params
        self._saved = []
        _refresh(self._wrappers)

    def _place(self, parameter: Any) -> tuple[Any, Any] | None:
        for leaf in self._leaves:
            for group in leaf.param_groups:
                if any(each is parameter for each in group["params"]):
                    return leaf, group
        return None

    def _default_place(self) -> tuple[Any, Any]:
        if not self._leaves:
            raise ValueError("`optimizer` has no optimizer for tables with dense kernels")
        return self._leaves[0], self._leaves[0].param_groups[0]


def _leaves(optimizer: Any) -> Iterator[Any]:
    """Returns the optimizers inside combined and wrapped ones, without those of fused kernels."""
    if optimizer is None or isinstance(optimizer, FusedOptimizer):
        return
    if isinstance(optimizer, CombinedOptimizer):
        for _, inner in optimizer.optimizers:
            yield from _leaves(inner)
    elif isinstance(optimizer, OptimizerWrapper):
        yield from _leaves(optimizer._optimizer)
    else:
        yield optimizer


def _wrappers(optimizer: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Returns wrapped optimizers, inner ones first, and the parameters that only the wrapper has.

    TorchRec's warm-up keeps its step as the state of such a parameter.
    """
    if isinstance(optimizer, CombinedOptimizer):
        for _, inner in optimizer.optimizers:
            yield from _wrappers(inner)
    elif isinstance(optimizer, OptimizerWrapper):
        yield from _wrappers(optimizer._optimizer)
        inner = optimizer._optimizer.params
        yield optimizer, {key: each for key, each in optimizer.params.items() if key not in inner}


def _refresh(wrappers: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    """Makes wrappers look at the groups and states that their optimizers have now."""
    for wrapper, own in wrappers:
        inner = wrapper._optimizer
        params, state = inner.params, inner.state
        if own:
            kept = {each: wrapper.state[each] for each in own.values() if each in wrapper.state}
            params, state = {**params, **own}, {**state, **kept}
        wrapper.params, wrapper.state = params, state
        wrapper.param_groups = inner.param_groups


def _contents(leaf: Any) -> tuple[list[list[Any]], dict[Any, Any], dict[str, Any] | None]:
    groups = [[*group["params"]] for group in leaf.param_groups]
    params = getattr(leaf, "params", None)
    return groups, dict(leaf.state), None if params is None else dict(params)


def _key_of(leaf: Any, parameter: Any) -> str | None:
    params = getattr(leaf, "params", None) or {}
    return next((key for key, each in params.items() if each is parameter), None)


def _set_key(leaf: Any, key: str, parameter: Any) -> None:
    """Updates the names of a KeyedOptimizer; torch's optimizers have none."""
    if getattr(leaf, "params", None) is None:
        return
    params = {**leaf.params, key: parameter}
    leaf.params = {name: each for name, each in params.items() if each is not None}


def as_optimizer(states: Mapping[Any, dict[str, torch.Tensor]]) -> Any:
    """Returns states by parameter in the form in which an optimizer has them."""
    return SimpleNamespace(state=states)
