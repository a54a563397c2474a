"""Optimizers of tables that move: learning rates, steps, and the optimizer that the user holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torchrec.optim.fused import FusedOptimizer, FusedOptimizerModule
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper, OptimizerWrapper

from fastplan.torchrec.dense_optimizer import TableStateError, states_of_group
from fastplan.torchrec.table_state import STEP, Table

_HYPER_PARAMETERS = ("eps", "beta1", "beta2", "weight_decay")
# By kind of fused optimizer, those that its update reads; all of them for other kinds.
_READ_BY: dict[str, tuple[str, ...]] = {
    "SGD": (),
    "EXACT_SGD": (),
    "EXACT_ADAGRAD": ("eps",),
    "EXACT_ROWWISE_ADAGRAD": ("eps", "weight_decay"),
    "LARS_SGD": ("weight_decay",),
}
# What a fused optimizer does that does not have such a setting.
_WITHOUT = {"weight_decay": 0.0, "lr_decay": 0.0}
_PRECISION = 1e-6  # fused kernels have their learning rate in single precision


class FusedSettings(NamedTuple):
    """What a fused kernel has beside tensors with a number for each row or weight."""

    lr: float
    group: dict[str, Any]  # the entries of its parameter group
    hyper: dict[str, float]  # those that its update reads
    step: int

    @property
    def values(self) -> dict[str, float]:
        """What can be compared with the settings of a dense kernel, by torch's names."""
        return {**_WITHOUT, "lr": float(self.group.get("lr", self.lr)), **self.hyper}


class DenseSettings(NamedTuple):
    """What the optimizer of a table with a dense kernel has beside tensors for it.

    Attributes:
        values: the settings of its group, by name; empty if the table is not trained.
        states: the states that the optimizer makes for it; None if that is not known.
        step: the step that it has reached.
    """

    values: dict[str, float]
    states: tuple[str, ...] | None
    step: int


def fused_settings(path: str, module: Any) -> dict[tuple[str, str], FusedSettings]:
    """Returns the settings of the tables with a fused kernel of this rank, by path and name."""
    return {
        (path, table.name): _settings_of(kernel)
        for kernel in _fused_kernels(module)
        for table in kernel.config.embedding_tables
    }


def apply_settings(
    path: str,
    module: Any,
    known: Mapping[tuple[str, str], FusedSettings],
    dense: Mapping[tuple[str, str], DenseSettings],
) -> dict[tuple[str, str], str]:
    """Gives the fused kernels of a new module the settings that their tables had.

    Args:
        path: the path of the module.
        module: the new module.
        known: settings of all tables that had a fused kernel, by path and name.
        dense: settings of the tables that had a dense kernel.

    Returns:
        By path and name of table, why its kernel can't have the settings that the table had.
    """
    reasons = {}
    for kernel in _fused_kernels(module):
        names = list(dict.fromkeys(table.name for table in kernel.config.embedding_tables))
        fused = {name: known[path, name] for name in names if (path, name) in known}
        others = {name: dense[path, name] for name in names if (path, name) in dense}
        settings = _for_all(kernel, fused, others)
        for name, why in _conflicts(path, settings, fused, others).items():
            reasons[path, name] = why
        inner, [group] = kernel.emb_module, kernel.fused_optimizer.param_groups
        group.update(settings.group)
        inner.set_learning_rate(settings.lr)
        if changed := {n: v for n, v in settings.hyper.items() if _differs(inner, n, v)}:
            inner.update_hyper_parameters(changed)
        inner.iter.fill_(settings.step)
        for name in names:
            for own in getattr(_parameter(module, name), "_in_backward_optimizers", ()):
                for each in own.param_groups:
                    each["lr"] = settings.group.get("lr", settings.lr)
    return reasons


def _settings_of(kernel: Any) -> FusedSettings:
    inner, [group] = kernel.emb_module, kernel.fused_optimizer.param_groups
    known = inner.optimizer_args._asdict()
    names = _READ_BY.get(inner.optimizer.name, _HYPER_PARAMETERS)
    if inner.optimizer.name == "EXACT_ROWWISE_ADAGRAD" and not known.get("weight_decay_mode"):
        names = ("eps",)  # without a mode, its update leaves the weight decay out
    return FusedSettings(
        inner.get_learning_rate(),
        {name: value for name, value in group.items() if name != "params"},
        {name: known[name] for name in names if name in known},
        int(inner.iter.item()),
    )


def _for_all(
    kernel: Any, fused: Mapping[str, FusedSettings], dense: Mapping[str, DenseSettings]
) -> FusedSettings:
    """Returns the settings of a kernel's first table, which the others must have too."""
    if fused:
        # Kernels of one module count the same batches.
        step = max(each.step for each in fused.values())
        return next(iter(fused.values()))._replace(step=step)
    built = _settings_of(kernel)
    values = next((each.values for each in dense.values() if each.values), {})
    lr = values.get("lr", built.values["lr"])
    hyper = {name: values.get(name, value) for name, value in built.hyper.items()}
    step = max((each.step for each in dense.values()), default=0)
    return FusedSettings(lr, {"lr": lr}, hyper, step)


def _conflicts(
    path: str,
    settings: FusedSettings,
    fused: Mapping[str, FusedSettings],
    dense: Mapping[str, DenseSettings],
) -> dict[str, str]:
    """Returns, by name, why a table can't have a kernel with these settings."""
    found = {}
    first = next(iter((*fused, *dense)), "")
    for name, own in fused.items():
        if not _are_same(own, settings):
            found[name] = (
                f"tables {full_name(path, first)} and {full_name(path, name)} would share a "
                f"kernel, but their optimizers have different settings ({settings.group} "
                f"{settings.hyper} and {own.group} {own.hyper}); give both the same, or keep them "
                "apart with another sharding type"
            )
    for name, each in dense.items():
        has, would = _differences(each.values, settings.values)
        if has:
            shared = f", shared with {full_name(path, first)}" if name != first else ""
            found[name] = (
                f"it has {has} in `optimizer`, and would have {would} in its fused kernel{shared}; "
                "give both the same, or let the table keep its dense kernel"
            )
    return found


def _are_same(one: FusedSettings, other: FusedSettings) -> bool:
    """Whether two kernels have the same settings. Their steps count the same batches."""
    first, second = ({**each.group, "lr": None} for each in (one, other))
    return first == second and not any(_differences(one.values, other.values))


def full_name(path: str, name: str) -> str:
    """Returns the name of a table with the path of its module, which is empty for the model."""
    return f"{path}.{name}" if path else name


def _differences(one: Mapping[str, float], other: Mapping[str, float]) -> tuple[str, str]:
    """Returns the settings that both have with other values, as each has them."""
    names = [
        name
        for name in one
        if name in other and not math.isclose(one[name], other[name], rel_tol=_PRECISION)
    ]
    first, second = (", ".join(f"{n} = {of[n]:.7g}" for n in names) for of in (one, other))
    return first, second


def _group_values(group: Mapping[str, Any]) -> dict[str, float]:
    """Returns the settings of a group of a torch optimizer that fused kernels may have too."""
    names = ("lr", "eps", *_WITHOUT)
    values = {name: float(group[name]) for name in names if name in group}
    if "betas" in group:
        values["beta1"], values["beta2"] = map(float, group["betas"])
    return values


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
        self._chosen: dict[str, tuple[Any, Any]] = {}  # optimizer and group of new tables, by key
        self._saved: list[tuple[list[list[Any]], dict[Any, Any], dict[str, Any] | None]] = []
        self._wrappers: list[tuple[Any, dict[str, Any]]] = []

    def lacks(self, parameter: Any) -> bool:
        """Whether a parameter is trained, but not by this optimizer."""
        # The parameter is a view of the kernel's tensor, and says True for a frozen one too.
        owner = getattr(parameter, "_original_tensor", parameter)
        return bool(owner.requires_grad) and self._place(parameter) is None

    def settings(self, parameter: Any, step: int) -> DenseSettings:
        """Returns the settings of a parameter, which are none if the optimizer lacks it."""
        place = self._place(parameter)
        if place is None:
            return DenseSettings({}, None, step)
        try:
            states = _state_names(*place)
        except TableStateError:
            states = None  # an optimizer that can't be made again from its settings
        return DenseSettings(_group_values(place[1]), states, step)

    def choose(self, key: str, states: Sequence[str], settings: FusedSettings) -> str:
        """Chooses the group that a table joins: the first one with the table's settings.

        Args:
            key: the table's key.
            states: the states that the table had in its fused kernel.
            settings: the settings that it had there.

        Returns:
            Why there is no such group; nothing if there is one.
        """
        reasons = []
        for leaf in self._leaves:
            for group in leaf.param_groups:
                why = _why_not_joined(leaf, group, states, settings)
                if not why:
                    self._chosen[key] = leaf, group
                    return ""
                reasons.append(why)
        return next(iter(reasons), "`optimizer` has no optimizer for tables with dense kernels")

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
        place = self._chosen.get(table.key) or self._place(old)
        if place is None:
            return {}  # a table that is not trained
        owner, group = _owner(place[0]), place[1]
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
            leaf, group = place or self._chosen[key]
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


def _owner(leaf: Any) -> Any:
    return leaf._optimizer if isinstance(leaf, KeyedOptimizerWrapper) else leaf


def _state_names(leaf: Any, group: Any) -> tuple[str, ...]:
    """Returns the names of the states that an optimizer makes for parameters of a group."""
    made = states_of_group(_owner(leaf), group, torch.empty(1, 1))
    return tuple(sorted({*made} - {STEP}))


def _why_not_joined(leaf: Any, group: Any, states: Sequence[str], settings: FusedSettings) -> str:
    """Returns why a table with a fused kernel can't join a group; nothing if it can."""
    kind = type(_owner(leaf)).__name__
    try:
        made = _state_names(leaf, group)
    except TableStateError as error:
        return str(error)
    if lost := sorted({*states} - {*made}):
        return (
            f"its optimizer state `{lost[0]}` has no place in a {kind}, which optimizes tables "
            "with dense kernels"
        )
    if new := sorted({*made} - {*states}):
        return f"its fused kernel has no state `{new[0]}`, which {kind} has for dense kernels"
    has, would = _differences(settings.values, _group_values(group))
    if has:
        return (
            f"it has {has} in its fused kernel, and would have {would} in `optimizer`; give "
            f"`optimizer` a group with {has}"
        )
    return ""


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
