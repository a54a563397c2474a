"""Compares plans: whether they are for the same model and cluster, and which tables move."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastplan.cache.why_miss import Difference, differences
from fastplan.engine.problem import Floats
from fastplan.model.plan import RANK, Basis, Plan, TableLayout
from fastplan.planning.movement import (
    ADDED,
    CHANGES,
    KERNEL,
    MOVED,
    REMOVED,
    RESHARDED,
    UNCHANGED,
    Movement,
    TableMovement,
    movement,
)
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.field_words import differences_in_words
from fastplan.report.terminal import escape_name, table_name
from fastplan.report.units import format_count, format_ranks
from fastplan.report.yardstick import with_one_yardstick

MARKS = {RESHARDED: "~", KERNEL: "~", MOVED: ">", ADDED: "+", REMOVED: "-", UNCHANGED: "="}


_YARDSTICK = "the plans were made with different costs: all are rated by the same hardware costs"


class NotComparable(ValueError):
    """The plans are for different models or clusters. The message says what differs."""


class Measured(NamedTuple):
    """A plan's step, measured on real devices."""

    rank_seconds: dict[str, tuple[float, ...]]  # by part, then by rank
    median: float  # seconds of a step
    spread: float  # seconds between the quartiles

    @property
    def rank_milliseconds(self) -> Floats | None:
        """The sum of all parts by rank; None if ranks were not measured separately."""
        if not self.rank_seconds:
            return None
        seconds = np.array([*self.rank_seconds.values()], np.float64)
        return np.asarray(1000 * seconds.sum(axis=0))


class TablePlacement(NamedTuple):
    """The placement of a table."""

    sharding_type: str
    kernel: str
    ranks: str  # of its shards in order, such as `r0-7`

    def __str__(self) -> str:
        return " ".join(self)


class TableChange(NamedTuple):
    """A table that changes. A plan without the table is None."""

    table: str
    kind: str  # one of movement.CHANGES, except unchanged
    before: TablePlacement | None
    after: TablePlacement | None
    bytes: int | None  # to move; None if the size is not known

    @property
    def words(self) -> str:
        """The change as text. What stays the same is written once."""
        before, after = self.before, self.after
        if before is None or after is None:
            return str(before or after)
        return f"{before} -> {after.ranks if before[:2] == after[:2] else after}"


class FieldChanges(NamedTuple):
    """What differs between the requests of two plans."""

    words: tuple[str, ...]  # for people; what follows from another difference is left out
    fields: tuple[str, ...]  # all fields with their values, for scripts

    @classmethod
    def of(cls, changes: Sequence[Difference], *more: str) -> FieldChanges:
        """Returns the changes, and more that are no fields of a request."""
        fields = sorted(map(str, changes), key=lambda text: text.startswith("cost."))
        return cls((*differences_in_words(changes), *more), (*map(escape_name, fields), *more))


class PlanStep(NamedTuple):
    """The differences between the first plan and another one."""

    label: str
    movement: Movement
    counts: dict[str, int]  # tables by kind of change
    changes: tuple[TableChange, ...]  # most bytes first
    differences: FieldChanges  # in model and cluster, if the comparison was forced
    settings: FieldChanges  # in the search for the plans
    tuned: tuple[str, ...]  # tables with the same placement and other settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two or more plans; each is compared with the first."""

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    steps: tuple[PlanStep, ...]
    measured: tuple[Measured | None, ...]
    yardstick: str = ""  # a remark if the plans were made with different costs

    @property
    def same(self) -> bool:
        """Whether all tables are the same in all plans."""
        return not any(step.changes or step.tuned for step in self.steps)


def compare(
    plans: Sequence[Plan],
    *,
    labels: Sequence[str] | None = None,
    measured: Mapping[str, Measured] | None = None,
    force: bool = False,
) -> Comparison:
    """Compares plans with the first of them.

    Args:
        plans: Two or more plans.
        labels: Names for the plans, such as their files; their own names by default.
        measured: Measurements by label.
        force: Whether to compare plans for different models or clusters anyway.

    Raises:
        NotComparable: if the plans are for different models or clusters.
        ValueError: if there are fewer than two plans, or not one label per plan.
    """
    if len(plans) < 2:
        raise ValueError("`plans` must be at least two")
    names = unique_labels([plan.name for plan in plans] if labels is None else labels)
    if len(names) != len(plans):
        raise ValueError("`labels` must be one per plan")
    steps = [
        _step(plans[0], plan, names[0], label, force)
        for plan, label in zip(plans[1:], names[1:], strict=True)
    ]
    rated, changed = with_one_yardstick(plans)
    return Comparison(
        labels=tuple(names),
        analyses=tuple(analyse(plan) for plan in rated),
        yardstick=_YARDSTICK if changed else "",
        steps=tuple(steps),
        measured=tuple((measured or {}).get(name) for name in names),
    )


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns paths without the directories that all of them are in, and with numbers if equal.

    Example:
        `["8.json", "16.json"]` for `["/runs/plans/8.json", "/runs/plans/16.json"]`
    """
    parts = [re.split(r"[/\\]+", path) for path in paths]
    shortest = min(map(len, parts), default=0)
    same = 0
    while same < shortest - 1 and len({tuple(each[: same + 1]) for each in parts}) == 1:
        same += 1
    return unique_labels(["/".join(each[same:]) for each in parts])


def unique_labels(names: Sequence[str]) -> list[str]:
    """Returns the names, with a number after those that occur more than once."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    used: dict[str, int] = {}
    distinct = []
    for name in names:
        used[name] = used.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} #{used[name]}")
    return distinct


def _step(before: Plan, after: Plan, first: str, label: str, force: bool) -> PlanStep:
    differences, settings = _subject_differences(before, after)
    if differences.fields and not force:
        found = differences.words
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise NotComparable(
            f"{escape_name(first)} and {escape_name(label)} are plans of different models or "
            f"clusters: {', '.join(found[:3])}{more}. `--force` compares them anyway."
        )
    moves = movement(before, after)
    worlds = before.ranks, after.ranks
    changed = [table for table in moves.tables if table.change != UNCHANGED]
    return PlanStep(
        label=label,
        movement=moves,
        counts={change: moves.count(change) for change in CHANGES},
        changes=tuple(_change(table, *worlds) for table in changed),
        differences=differences,
        settings=settings,
        tuned=tuple(
            table_name(table.path, table.name)
            for table in moves.tables
            if table.change == UNCHANGED and _settings(table.before) != _settings(table.after)
        ),
    )


def _change(table: TableMovement, old_ranks: int, new_ranks: int) -> TableChange:
    return TableChange(
        table=table_name(table.path, table.name),
        kind=table.change,
        before=_placed(table.before, old_ranks),
        after=_placed(table.after, new_ranks),
        bytes=table.bytes,
    )


def _settings(table: TableLayout | None) -> dict[str, Any]:
    """The settings of a table in a plan file, without its placement."""
    settings = {} if table is None else table.settings
    return {name: value for name, value in settings.items() if name not in ("shards", "ranks")}


def _placed(table: TableLayout | None, world: int) -> TablePlacement | None:
    if table is None:
        return None
    ranks = format_ranks(table.shards[:, RANK].tolist(), world)
    return TablePlacement(table.sharding_type, table.kernel, ranks)


# Free memory differs slightly between equal hosts.
_CAPACITY_TOLERANCE = 0.01
# Fields about the search for a plan. All others are about the model, its load or the cluster.
_SETTINGS = re.compile(
    r"plan_version|search\b.*|context\.(?!local_world_size|group_size).*", re.DOTALL
)


def _subject_differences(before: Plan, after: Plan) -> tuple[FieldChanges, FieldChanges]:
    """Finds differences between the requests of two plans.

    Returns:
        Differences in model and cluster, and differences in the search.
    """
    if before.basis is None or after.basis is None:
        return FieldChanges.of((), *_layout_differences(before, after)), FieldChanges.of(())
    subjects, settings, options, costs = [], [], 0, False
    for change in differences(before.basis.canonical, after.basis.canonical):
        if change.field.startswith("tables[") and change.field.endswith("].options"):
            options += 1
        elif change.field.startswith("hardware"):
            costs = True
        elif _SETTINGS.fullmatch(change.field) or _is_unused_bandwidth(change):
            settings.append(change)
        else:
            subjects.append(change)
    more = ["other costs"] if costs else []
    if options:
        more.append(f"other options for {format_count(options, 'table')}")
    # A different reservation explains different free memory.
    reserved = any(change.field.startswith("context.reservation") for change in settings)
    (settings if reserved else subjects).extend(_capacities(before.basis, after.basis))
    return FieldChanges.of(subjects), FieldChanges.of(settings, *more)


def _is_unused_bandwidth(change: Difference) -> bool:
    """Whether one of the plans does not use this bandwidth, because it has no such collective."""
    return change.field.startswith("cost.bw_") and 0.0 in (change.old, change.new)


def _capacities(before: Basis, after: Basis) -> list[Difference]:
    found = []
    for tier in ("rank_hbm", "rank_ddr", "rank_ssd"):
        old, new = getattr(before.cluster, tier), getattr(after.cluster, tier)
        for rank, (a, b) in enumerate(zip(old, new, strict=False)):
            if abs(a - b) > _CAPACITY_TOLERANCE * max(a, b):
                found.append(Difference(f"{tier}[{rank}]", a, b))
                break
    return found


def _layout_differences(before: Plan, after: Plan) -> list[str]:
    """Differences in tables and shapes. An unused rank looks like a missing one."""
    old = {table_name(table.path, table.name): table.shape for table in before.layout.tables}
    new = {table_name(table.path, table.name): table.shape for table in after.layout.tables}
    found = [f"table {escape_name(name)} is missing" for name in old if name not in new]
    found += [f"table {escape_name(name)} is new" for name in new if name not in old]
    for name, shape in old.items():
        other = new.get(name)
        if shape is not None and other is not None and shape != other:
            found.append(f"table {escape_name(name)} has shape {other}, not {shape}")
    sizes = before.layout.ranks_per_host, after.layout.ranks_per_host
    if None not in sizes and sizes[0] != sizes[1]:
        found.append(f"hosts have {sizes[1]} ranks, not {sizes[0]}")
    if before.ranks != after.ranks and _knows_ranks(before) and _knows_ranks(after):
        found.append(f"there are {after.ranks} ranks, not {before.ranks}")
    return found


def _knows_ranks(plan: Plan) -> bool:
    """Whether the number of ranks is known: from the request, or from tables on all ranks."""
    uniform = ("data_parallel", "row_wise")
    return plan.basis is not None or any(
        table.sharding_type in uniform for table in plan.layout.tables
    )
