"""How plans differ: what moves, what that costs, and what it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastplan.engine.problem import Floats
from fastplan.model.plan import RANK, Plan, TableLayout
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
from fastplan.report.comparable import different_subjects
from fastplan.report.names import table_name, visible
from fastplan.report.units import of_ranks

MARKS = {RESHARDED: "~", KERNEL: "~", MOVED: ">", ADDED: "+", REMOVED: "-", UNCHANGED: "="}


class NotComparable(ValueError):
    """Plans of different models or clusters; says what differs."""


class Measured(NamedTuple):
    """A plan's step as it was measured on real devices."""

    rank_seconds: dict[str, tuple[float, ...]]  # by part, then by rank
    median: float  # seconds of a step
    spread: float  # seconds between the quartiles

    @property
    def rank_milliseconds(self) -> Floats | None:
        """All parts of each rank; None where ranks were not measured one by one."""
        if not self.rank_seconds:
            return None
        seconds = np.array([*self.rank_seconds.values()], np.float64)
        return np.asarray(1000 * seconds.sum(axis=0))


class Placed(NamedTuple):
    """How a table lies."""

    sharding_type: str
    kernel: str
    ranks: str  # of its shards in order, such as `r0-7`

    def __str__(self) -> str:
        return " ".join(self)


class TableChange(NamedTuple):
    """One table that is not as before. A side that does not have it is None."""

    table: str
    kind: str  # one of movement.CHANGES, but unchanged
    before: Placed | None
    after: Placed | None
    bytes: int | None  # to be moved; None where sizes are not known

    @property
    def words(self) -> str:
        """The change in short: what stays the same is said once."""
        before, after = self.before, self.after
        if before is None or after is None:
            return str(before or after)
        return f"{before} -> {after.ranks if before[:2] == after[:2] else after}"


class Step(NamedTuple):
    """From the first plan to another one."""

    label: str
    movement: Movement
    counts: dict[str, int]  # tables by what becomes of them
    changes: tuple[TableChange, ...]  # most bytes first
    differences: tuple[str, ...]  # in model and cluster, when the comparison was forced
    settings: tuple[str, ...]  # in how the plans were searched for
    tuned: tuple[str, ...]  # tables that lie as before, with other settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two or more plans; every step starts from the first."""

    labels: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    steps: tuple[Step, ...]
    measured: tuple[Measured | None, ...]

    @property
    def same(self) -> bool:
        """Whether all plans have every table alike."""
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
        labels: what to call the plans, such as their files; their names by default.
        measured: measurements by label.
        force: compares plans of different models or clusters, too.

    Raises NotComparable for plans of different models or clusters.
    """
    if len(plans) < 2:
        raise ValueError("`plans` must be at least two")
    names = distinct([plan.name for plan in plans] if labels is None else labels)
    if len(names) != len(plans):
        raise ValueError("`labels` must be one per plan")
    steps = [
        _step(plans[0], plan, names[0], label, force)
        for plan, label in zip(plans[1:], names[1:], strict=True)
    ]
    return Comparison(
        labels=tuple(names),
        analyses=tuple(analyse(plan) for plan in plans),
        steps=tuple(steps),
        measured=tuple((measured or {}).get(name) for name in names),
    )


def distinct(names: Sequence[str]) -> list[str]:
    """Names with a number where several are alike."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    used: dict[str, int] = {}
    distinct = []
    for name in names:
        used[name] = used.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name} #{used[name]}")
    return distinct


def _step(before: Plan, after: Plan, first: str, label: str, force: bool) -> Step:
    differences, settings = different_subjects(before, after)
    if differences and not force:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise NotComparable(
            f"{visible(first)} and {visible(label)} are plans of different models or clusters: "
            f"{', '.join(differences[:3])}{more}. "
            "Compare them all the same with --force (`force=True`)."
        )
    moves = movement(before, after)
    worlds = before.ranks, after.ranks
    changed = [table for table in moves.tables if table.change != UNCHANGED]
    return Step(
        label=label,
        movement=moves,
        counts={change: moves.count(change) for change in CHANGES},
        changes=tuple(_change(table, *worlds) for table in changed),
        differences=tuple(differences),
        settings=tuple(settings),
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
    """What a plan file says of a table beyond where it lies."""
    settings = {} if table is None else table.settings
    return {name: value for name, value in settings.items() if name not in ("shards", "ranks")}


def _placed(table: TableLayout | None, world: int) -> Placed | None:
    if table is None:
        return None
    ranks = of_ranks(table.shards[:, RANK].tolist(), world)
    return Placed(table.sharding_type, table.kernel, ranks)
