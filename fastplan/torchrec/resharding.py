"""Moves of tables in a running job, from any plan to any other one: all tables or none.

For each module with a changed table, the ranks build the sharded module of the new plan beside the
old one (`live/modules`), fill it with what they hold, exchange what they lack (`live/tensors`),
agree that all have succeeded (`live/agreement`), and only then exchange the contents of the
modules.

TorchRec's own `DistributedModelParallel.reshard` is not used. It moves only whole table-wise and
column-wise shards of an EmbeddingBagCollection, one per rank and table. It loses second states of
optimizers, and a failure leaves some ranks with the old plan and others with the new one.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import torch.distributed as dist
from torchrec.distributed.comm import intra_and_cross_node_pg
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from fastplan.torchrec.live.agreement import Ranks, ReshardError
from fastplan.torchrec.live.checks import changed_tables, facts, why_restart
from fastplan.torchrec.live.modules import Exchange, build_again
from fastplan.torchrec.live.optimizers import (
    DenseOptimizer,
    DenseSettings,
    FusedSettings,
    apply_settings,
    as_optimizer,
    full_name,
    fused_settings,
)
from fastplan.torchrec.live.tensors import (
    Transport,
    describe,
    states_of,
    why_not_copied,
)
from fastplan.torchrec.table_state import STEP, Table, finish_writes, read_tables

_HIERARCHICAL = ("table_row_wise", "grid_shard")
_ROUND_BYTES = 64 * 2**20

Progress = Callable[[int, int], None]
Merge = Literal["exact", "mean"]


class Resharding(NamedTuple):
    """What `reshard` has done.

    Attributes:
        moved: the tables that have other shards now, as module path and name.
        bytes: bytes of weights and optimizer states that ranks sent each other, over all ranks.
        rounds: the number of rounds in which they did so.
        needs_restart: table -> why it can't move in a running job. If not empty, nothing has
            changed.
    """

    moved: tuple[str, ...]
    bytes: int
    rounds: int
    needs_restart: dict[str, str]


def reshard(
    job: DistributedModelParallel,
    after: ShardingPlan,
    *,
    optimizer: Any = None,
    merge: Merge = "exact",
    round_bytes: int = _ROUND_BYTES,
    progress: Progress | None = None,
) -> Resharding:
    """Moves the tables of a running job to the placement of a plan: all tables or none.

    Every rank must call this at the same step, with no batch in flight and no gradient that an
    optimizer has not used. Weights, optimizer states, learning rates and steps stay what they are,
    and so do the objects that the job holds: modules, `fused_optimizer`, the given `optimizer`.
    Ranks send each other only what a rank lacks. While tables move, a rank has memory for its old
    and new shards of all changed modules, and for two buffers.

    Args:
        job: the sharded model.
        after: the new plan. Modules that it does not change are left alone.
        optimizer: the optimizer of tables with dense kernels, which data-parallel tables have:
            torch's, a KeyedOptimizer, or one that combines or wraps others. It must have all such
            tables of changed modules. A table joins the first group that has its settings.
        merge: what to do when a row-wise state comes from column shards that differ and go into one
            shard: `exact` refuses, `mean` takes the mean over columns, as row-wise Adagrad would
            have had it for the same gradients.
        round_bytes: bytes that a rank sends, and receives, at most at a time.
        progress: called after each round with the number of rounds done and of all rounds.

    Returns:
        What has moved. If `needs_restart` names a table, nothing has moved on any rank.

    Raises:
        ReshardError: a rank failed or was lost, or ranks were given different arguments. The ranks
            that are left have their old plan and tables.
        TypeError: the model is not sharded, or an argument of this rank has a wrong type.
        ValueError: `merge` is unknown, or `round_bytes` is below 1.
    """
    if not isinstance(job, DistributedModelParallel):
        raise TypeError(f"`job` must be a DistributedModelParallel, not a {type(job).__name__}")
    wrong = _wrong_argument(after, optimizer, merge, round_bytes, progress)
    move = _Move(job, after, optimizer, (merge, round_bytes))
    try:
        needs_restart = move.check(wrong)
    except ReshardError:
        if wrong is not None:
            raise wrong from None  # other ranks know by now, and don't wait for this one
        raise
    if needs_restart:
        return Resharding((), 0, 0, needs_restart)
    if not move.changed:
        return Resharding((), 0, 0, {})
    if needs_restart := move.build():
        return Resharding((), 0, 0, needs_restart)
    transport = move.fill(progress or (lambda done, rounds: None))
    move.commit()
    names = [
        f"{path}.{name}" if path else name for path in move.changed for name in move.changed[path]
    ]
    return Resharding((*names,), transport.bytes, len(transport.rounds), {})


class _Move:
    """A move of the tables of a job, one step after the other, each with all ranks."""

    def __init__(
        self,
        job: DistributedModelParallel,
        after: ShardingPlan,
        optimizer: Any,
        options: tuple[Merge, int],
    ) -> None:
        self._job, self._after, self._given, self._options = job, after, optimizer, options
        self._dense = DenseOptimizer(optimizer)
        self._ranks = Ranks(job._env.process_group)
        self.changed: dict[str, list[str]] = {}
        self._old: dict[str, Table] = {}
        self._new: dict[str, Table] = {}
        self._modules: dict[str, Any] = {}
        self._states: dict[Any, dict[str, Any]] = {}  # of new parameters with dense kernels

    def check(self, wrong: Exception | None) -> dict[str, str]:
        """Returns, by table, why it can't move; else reads what every rank holds.

        Args:
            wrong: what is wrong with the arguments of this rank; all ranks raise an error then.
        """

        def work() -> tuple[None, Any]:
            if wrong is not None:
                raise wrong
            same = (_digest(self._after), *self._options)
            if reasons := why_restart(self._job, self._after, self._given is not None):
                return None, (same, reasons, {}, {}, {})
            self.changed = changed_tables(self._job.plan, self._after)
            self._old = read_tables(_part_of(self._job, self.changed), self._given)
            if reasons := self._not_owned():
                return None, (same, reasons, {}, {}, {})
            return None, (same, {}, describe(states_of(self._old)), *self._settings())

        _, shared = self._ranks.attempt("start the move", work)
        given, reasons, self._held, fused, dense = zip(*shared, strict=True)
        for name, values in zip(
            ("plans", "values of `merge`", "values of `round_bytes`"),
            zip(*given, strict=True),
            strict=True,
        ):
            if other := [rank for rank, each in enumerate(values) if each != values[0]]:
                told = "" if name == "plans" else f" ({values[0]} and {values[other[0]]})"
                raise ReshardError(
                    f"ranks 0 and {other[0]} were given different {name}{told}; give all ranks "
                    "the same"
                )
        self._fused: dict[tuple[str, str], FusedSettings] = _union(fused)
        self._dense_settings: dict[tuple[str, str], DenseSettings] = _union(dense)
        return _union(reasons)

    def _not_owned(self) -> dict[str, str]:
        """Returns, by table with a dense kernel, that the optimizer lacks it."""
        return {
            _name(table): (
                f"`optimizer=` does not have table {_name(table)}; pass the one that does, or a "
                "CombinedOptimizer of all (if nobody trains it, add it to one with lr = 0)"
            )
            for table in self._old.values()
            if not table.is_fused
            and table.parameter is not None
            and self._dense.lacks(table.parameter)
        }

    def _settings(self) -> tuple[Any, Any]:
        fused: dict[tuple[str, str], FusedSettings] = {}
        for path in self.changed:
            fused |= fused_settings(path, self._job.module.get_submodule(path))
        dense = {}
        for table in self._old.values():
            if not table.is_fused and table.parameter is not None:
                step = table.states[STEP].shards[0].tensor.item() if STEP in table.states else 0
                dense[table.path, table.name] = self._dense.settings(table.parameter, int(step))
        return fused, dense

    def build(self) -> dict[str, str]:
        """Builds the new modules. Returns, by table, why its states can't be copied."""
        kinds = {
            sharding.sharding_type
            for path in self.changed
            for sharding in _shardings(self._after, path).values()
        }
        if kinds & {*_HIERARCHICAL}:
            # Makes the groups that TorchRec keeps for these types; all ranks must take part.
            group: Any = self._job._env.process_group
            intra_and_cross_node_pg(self._job.device, backend=dist.get_backend(group))

        def work() -> tuple[None, Any]:
            if reasons := self._why_not_dense():
                return None, (reasons, {})
            for path in self.changed:
                shardings = _shardings(self._after, path)
                self._modules[path] = build_again(self._job, path, shardings)
                conflicts = apply_settings(
                    path, self._modules[path], self._fused, self._dense_settings
                )
                reasons |= {full_name(*table): why for table, why in conflicts.items()}
            new_job = _as_job(self._after, self._modules)
            self._make_states(read_tables(new_job))
            self._new = read_tables(new_job, as_optimizer(self._states))
            finish_writes(new_job)
            return None, (reasons | self._why_not_fused(), describe(states_of(self._new)))

        _, shared = self._ranks.attempt("build the modules of the new plan", work)
        found, self._needed = zip(*shared, strict=True)
        if reasons := _union(found):
            return reasons
        return {
            _name(self._new[key]): why
            for key, why in why_not_copied(self._held, self._needed).items()
        }

    def _why_not_dense(self) -> dict[str, str]:
        """Chooses groups of the optimizer for tables whose kernel was fused and is dense then.

        Returns:
            By table, why there is no group for it.
        """
        reasons = {}
        for key, old in self._old.items():
            at = (old.path, old.name)
            sharding = _shardings(self._after, old.path)[old.name]
            if not old.is_fused or sharding.compute_kernel != "dense":
                continue
            if why := self._dense.choose(key, self._held_states(key), self._fused[at]):
                reasons[_name(old)] = why
        return reasons

    def _why_not_fused(self) -> dict[str, str]:
        """Returns, by table whose kernel was dense and is fused now, which state it had not."""
        reasons = {}
        for table in self._new.values():
            old = self._dense_settings.get((table.path, table.name))
            if not table.is_fused or not table.states or old is None or old.states is None:
                continue
            if other := sorted({*table.states} - {STEP} ^ {*old.states}):
                owner = "`optimizer`" if other[0] in old.states else "its fused kernel"
                reasons[_name(table)] = f"its optimizer state `{other[0]}` is only in {owner}"
        return reasons

    def _held_states(self, key: str) -> list[str]:
        """Returns the states that a table has on any rank, except for scalars."""
        return sorted(
            {state for each in self._held for other, state in each if other == key} - {"weight"}
        )

    def _make_states(self, tables: Mapping[str, Table]) -> None:
        """Makes memory for the states of tables with dense kernels."""
        for key, table in tables.items():
            if table.is_fused or table.parameter is None:
                continue
            at = (table.path, table.name)
            step = self._fused[at].step if at in self._fused else self._dense_settings[at].step
            old = _parameter(self._job, self._old[key])
            self._states[table.parameter] = self._dense.new_states(
                table, self._held_states(key), step, old
            )

    def fill(self, progress: Progress) -> Transport:
        """Copies weights and states into the new modules."""
        merge, round_bytes = self._options

        def prepare() -> tuple[Transport, None]:
            transport = Transport(self._ranks, self._held, self._needed, round_bytes)
            on_gpu = dist.get_backend(self._ranks.group) == "nccl"
            device = self._job.device if on_gpu else "cpu"
            transport.prepare(states_of(self._old), states_of(self._new), device)
            return transport, None

        transport, _ = self._ranks.attempt("allocate the exchange", prepare)
        failures: list[Exception] = []
        for number in range(len(transport.rounds)):
            if failed := transport.exchange(number):
                failures.append(failed)
            try:
                progress(number + 1, len(transport.rounds))
            except Exception as error:  # other ranks wait for the next round
                failures.append(error)

        def finish() -> tuple[None, None]:
            if failures:
                raise failures[0]
            transport.finish(merge)
            finish_writes(_as_job(self._after, self._modules))
            return None, None

        self._ranks.attempt("copy its shards", finish)
        return transport

    def commit(self) -> None:
        """Gives the job the new modules on all ranks, or on none."""
        exchanges = [
            Exchange(self._job.module.get_submodule(path), new)
            for path, new in self._modules.items()
        ]
        old_plan = self._job._plan
        before = {key: _dense_parameter(self._job, table) for key, table in self._old.items()}

        def work() -> tuple[None, None]:
            for each in exchanges:
                each.do()
            self._job._plan = _updated(old_plan, self._after, self.changed)
            after = {key: _dense_parameter(self._job, table) for key, table in self._new.items()}
            changes = [(key, before[key], after[key]) for key in before]
            self._dense.replace(changes, self._states)
            return None, None

        try:
            self._ranks.attempt("put the new modules into the model", work)
        except ReshardError:
            for each in exchanges:
                each.undo()
            self._dense.undo()
            self._job._plan = old_plan
            raise
        for each in exchanges:
            each.forget()
        self._old = {}
        gc.collect()  # modules and their hooks refer to each other


def _wrong_argument(
    after: Any, optimizer: Any, merge: Any, round_bytes: Any, progress: Any
) -> Exception | None:
    """Returns the error for the first argument that is wrong."""
    for name, value, is_right, kind in (
        ("after", after, isinstance(after, ShardingPlan), "a ShardingPlan"),
        (
            *("optimizer", optimizer, optimizer is None or hasattr(optimizer, "param_groups")),
            "an optimizer of torch or TorchRec",
        ),
        (
            *("round_bytes", round_bytes),
            isinstance(round_bytes, int) and not isinstance(round_bytes, bool),
            "an int",
        ),
        ("progress", progress, progress is None or callable(progress), "a function"),
    ):
        if not is_right:
            return TypeError(f"`{name}` must be {kind}, not a {type(value).__name__}")
    if merge not in ("exact", "mean"):
        return ValueError(f"`merge` must be 'exact' or 'mean', not {merge!r}")
    if round_bytes < 1:
        return ValueError(f"`round_bytes` must be at least 1, not {round_bytes}")
    return None


def _digest(plan: ShardingPlan) -> str:
    content = [
        (path, name, facts(sharding))
        for path in plan.plan
        for name, sharding in _shardings(plan, path).items()
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _shardings(plan: ShardingPlan, path: str) -> EmbeddingModuleShardingPlan:
    found: Any = plan.plan[path]
    return found


def _part_of(job: DistributedModelParallel, paths: Any) -> Any:
    """Returns the job with a part of its modules, as far as its tables are read."""
    return _as_job(job.plan, {path: job.module.get_submodule(path) for path in paths})


def _as_job(plan: ShardingPlan, modules: Mapping[str, Any]) -> Any:
    """Returns modules that are not in a job in the form in which a job has them."""
    return SimpleNamespace(
        plan=ShardingPlan({path: plan.plan[path] for path in modules}),
        module=SimpleNamespace(get_submodule=modules.__getitem__),
    )


def _updated(old: ShardingPlan, new: ShardingPlan, paths: Any) -> ShardingPlan:
    return ShardingPlan({**old.plan, **{path: deepcopy(new.plan[path]) for path in paths}})


def _union(parts: Any) -> dict[Any, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _name(table: Table) -> str:
    return full_name(table.path, table.name)


def _parameter(job: DistributedModelParallel, table: Table) -> Any:
    """Returns the parameter of a table in the job; an empty one if the rank has no shard of it."""
    within = table.key[len(table.path) + 1 :] if table.path else table.key
    return job.module.get_submodule(table.path).get_parameter(within)


def _dense_parameter(job: DistributedModelParallel, table: Table) -> Any:
    return None if table.is_fused else _parameter(job, table)
