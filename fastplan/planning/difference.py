"""The differences between a previous plan's request and a new one, by table and by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, itemgetter
from typing import Any, NamedTuple

import numpy as np

from fastplan.model.plan import Plan, TableColumns
from fastplan.model.request import Cluster, Request, Table
from fastplan.model.units import format_count
from fastplan.planning.held import LOST, Key, RankMap, key_of

_SHAPE = ("rows", "dim", "element_size")
_CONSTRAINTS = ("min_partition", "buckets", "tower")
_APART = ("name", "path", "menu", "bytes", *_SHAPE, *_CONSTRAINTS)
_COST = tuple(name for name in Table._fields if name not in _APART)

_facts_of = itemgetter(*map(Table._fields.index, _SHAPE + _COST + _CONSTRAINTS))
_MAX_NAMES = 5
_CAPACITY_NOISE = 0.01


Options = frozenset[str]


class PlanModelMismatch(ValueError):
    """The previous plan has no table in common with the model."""


class FieldChange(NamedTuple):
    """A changed field of a table."""

    table: str
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.table}: {self.field} {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes since the previous plan. Tables are named `path.name`."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int  # tables in both plans
    resized: tuple[FieldChange, ...]  # rows, columns, element size
    drifted: tuple[FieldChange, ...]  # inputs of the costs, such as pooling and batch size
    constrained: tuple[FieldChange, ...]  # the allowed options
    changed: frozenset[int]  # numbers of the request's tables that are new or changed
    lost_ranks: tuple[int, ...]  # old numbers
    new_ranks: tuple[int, ...]  # new numbers of added ranks
    renumbered: tuple[tuple[int, int], ...]  # old and new numbers, where they differ
    resized_ranks: tuple[int, ...]  # new numbers of ranks whose memory changed
    ranks_per_host: tuple[int, int] | None  # before and after, if they differ
    cost_model: bool  # bandwidths or other constants of the cost model differ
    compared: bool  # False if the previous plan has no costs and constraints

    @property
    def same_ranks(self) -> bool:
        """Whether the plan has the same ranks under the same numbers."""
        return not (self.lost_ranks or self.new_ranks or self.renumbered or self.ranks_per_host)

    def __str__(self) -> str:
        return "; ".join(self._parts()) or "nothing differs"

    def _parts(self) -> Iterator[str]:
        named = (("added", self.added), ("removed", self.removed))
        for word, names in named:
            if names:
                yield f"{format_count(len(names), 'table')} {word} ({_listed(names)})"
        groups = (
            ("resized", self.resized),
            ("with other costs", self.drifted),
            ("with other constraints", self.constrained),
        )
        for word, changes in groups:
            if changes:
                names = tuple(dict.fromkeys(change.table for change in changes))
                yield f"{format_count(len(names), 'table')} {word} ({_listed(names)})"
        ranks = (
            ("lost", self.lost_ranks),
            ("new", self.new_ranks),
            ("with other memory", self.resized_ranks),
        )
        for word, numbers in ranks:
            if numbers:
                yield f"{format_count(len(numbers), 'rank')} {word} ({_listed(numbers)})"
        if self.renumbered:
            yield f"{format_count(len(self.renumbered), 'rank')} renumbered"
        if self.ranks_per_host:
            yield "{} -> {} ranks per host".format(*self.ranks_per_host)
        if self.cost_model:
            yield "another cost model"


def difference(previous: Plan, request: Request, cluster: Cluster, ranks: RankMap) -> Difference:
    """Returns what has changed since the previous plan.

    Args:
        previous: the previous plan.
        request: the new request.
        cluster: the new cluster.
        ranks: for each rank of the previous plan, its rank in the cluster.

    Raises:
        PlanModelMismatch: no table is the same. The message names tables of both.
    """
    new = dict(zip(map(key_of, request.tables), range(len(request.tables)), strict=True))
    basis = previous.basis
    old: dict[Key, Any]
    if basis is None:
        columns = TableColumns.of(previous.layout.tables)
        old = dict(zip(columns.keys, columns.shapes, strict=True))
    else:
        tables = basis.request.tables
        old = dict(zip(map(key_of, tables), tables, strict=True))
    added = [key for key in new if key not in old]
    removed = [] if len(old) == len(new) - len(added) else [key for key in old if key not in new]
    if len(removed) == len(old):
        raise PlanModelMismatch(
            f"no table of the previous plan `{previous.name}` ({_listed(_names(removed))}) is a "
            f"table of the model ({_listed(_names(added))}); pass a plan of this model, or none"
        )
    if basis is None:
        changes = _shape_changes(old, request, new)
    else:
        changes = _changes([*map(old.get, new)], basis.request, request)
    moved_to = {after for after in ranks if after != LOST}
    return Difference(
        added=_names(added),
        removed=_names(removed),
        kept=len(old) - len(removed),
        resized=tuple(changes.resized),
        drifted=tuple(changes.drifted),
        constrained=tuple(changes.constrained),
        changed=changes.tables.union(new[key] for key in added),
        lost_ranks=tuple(rank for rank, after in enumerate(ranks) if after == LOST),
        new_ranks=tuple(r for r in range(len(cluster.rank_hbm)) if r not in moved_to),
        renumbered=tuple((r, after) for r, after in enumerate(ranks) if after not in (LOST, r)),
        resized_ranks=() if basis is None else _resized_ranks(basis.cluster, cluster, ranks),
        ranks_per_host=_hosts(previous, cluster),
        cost_model=basis is not None and _costs_differ(basis.request, request),
        compared=basis is not None,
    )


def table_name(path: str, name: str) -> str:
    """Returns the name of a table in reports."""
    return f"{path}.{name}" if path else name


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(table_name(*key) for key in keys)


def _listed(names: tuple[Any, ...]) -> str:
    shown = ", ".join(map(str, names[:_MAX_NAMES]))
    return shown if len(names) <= _MAX_NAMES else f"{shown} and {len(names) - _MAX_NAMES} more"


class _Changes:
    """The differences between tables of one name."""

    def __init__(self) -> None:
        self.resized: list[FieldChange] = []
        self.drifted: list[FieldChange] = []
        self.constrained: list[FieldChange] = []
        self.tables: frozenset[int] = frozenset()  # by number in the new request


def _changes(matched: Sequence[Table | None], before: Request, request: Request) -> _Changes:
    """Returns the changes of the request's tables since the previous plan."""
    found = _Changes()
    groups = (
        (found.resized, _SHAPE),
        (found.drifted, _COST),
        (found.constrained, _CONSTRAINTS),
    )
    options = [[_options(menu) for menu in each.menus] for each in (before, request)]
    same_menu = [[was == now for now in options[1]] for was in options[0]]
    numbers = []
    for number in _candidates(matched, request.tables, options):
        was, table = matched[number], request.tables[number]
        if was is None or (_alike(was, table) and same_menu[was.menu][table.menu]):
            continue
        allowed = options[0][was.menu], options[1][table.menu]
        name = table_name(table.path, table.name)
        known = sum(len(changes) for changes, _ in groups)
        for changes, fields in groups:
            changes += _field_changes(name, fields, was, table)
        if allowed[0] != allowed[1]:
            found.constrained.append(FieldChange(name, "options", *map(sorted, allowed)))
        if sum(len(changes) for changes, _ in groups) > known:
            numbers.append(number)
    found.tables = frozenset(numbers)
    return found


def _candidates(
    matched: Sequence[Table | None], tables: tuple[Table, ...], options: list[list[Options]]
) -> Iterable[int]:
    """Returns the numbers of tables that may have changed; most are unchanged."""
    if options[0] != options[1]:
        return range(len(tables))
    return [number for number, same in enumerate(map(eq, matched, tables)) if not same]


def _alike(old: Table, new: Table) -> bool:
    """Whether two tables are equal, so that their fields need no comparison."""
    return bool(_facts_of(old) == _facts_of(new))


def _field_changes(
    name: str, fields: tuple[str, ...], old: Table, new: Table
) -> Iterator[FieldChange]:
    for field in fields:
        was, now = getattr(old, field), getattr(new, field)
        # NaN equals NaN here: it means that the number is not given.
        if was != now and (was == was or now == now):
            yield FieldChange(name, field, was, now)


def _shape_changes(
    old: Mapping[Key, tuple[int, int] | None], request: Request, new: Mapping[Key, int]
) -> _Changes:
    """Returns the changes of a table's shape, which the layout alone has."""
    found = _Changes()
    numbers = []
    for key, shape in old.items():
        number = new.get(key)
        if number is None or shape is None:
            continue
        now = request.tables[number].rows, request.tables[number].dim
        if shape == now:
            continue
        numbers.append(number)
        for field, was, size in zip(("rows", "dim"), shape, now, strict=True):
            if was != size:
                found.resized.append(FieldChange(table_name(*key), field, was, size))
    found.tables = frozenset(numbers)
    return found


def _options(menu: Any) -> Options:
    return frozenset(f"{item.sharding_type} {item.kernel}" for item in menu)


def _costs_differ(before: Request, request: Request) -> bool:
    """Whether constants of the cost model differ, or all constants of each common option."""
    if _constants(before) != _constants(request):
        return True
    old, new = _option_constants(before), _option_constants(request)
    return any(old[option].isdisjoint(new[option]) for option in old.keys() & new.keys())


def _option_constants(request: Request) -> dict[tuple[str, str], set[Any]]:
    """Returns bandwidths and coefficients by option, except for kernels with a cache per table."""
    found: dict[tuple[str, str], set[Any]] = {}
    for menu in request.menus:
        for item in menu:
            if not item.kernel.endswith("_caching"):
                constants = item.bandwidth, request.coefficients[item.coefficients]
                found.setdefault((item.sharding_type, item.kernel), set()).add(constants)
    return found


def _constants(request: Request) -> Any:
    """Returns the cost model without the sizes that follow from the ranks."""
    cost = request.cost
    return [getattr(cost, name) for name in cost.__slots__ if not name.endswith("_size")]


def _resized_ranks(old: Cluster, new: Cluster, ranks: RankMap) -> tuple[int, ...]:
    """Returns the ranks whose memory changed by more than another input reservation explains."""
    before = np.array([old.rank_hbm, old.rank_ddr, old.rank_ssd], np.float64)
    after = np.array([new.rank_hbm, new.rank_ddr, new.rank_ssd], np.float64)
    kept = np.flatnonzero(np.array(ranks) != LOST)
    now = np.array(ranks)[kept]
    was, is_now = before[:, kept], after[:, now]
    noise = _CAPACITY_NOISE * np.maximum(np.abs(was), np.abs(is_now))
    differs = (np.abs(was - is_now) > noise).any(axis=0)
    return tuple(now[differs].tolist())


def _hosts(previous: Plan, cluster: Cluster) -> tuple[int, int] | None:
    before = previous.layout.ranks_per_host
    if previous.basis is not None:
        before = previous.basis.cluster.local_world_size
    if before is None or before == cluster.local_world_size:
        return None
    return before, cluster.local_world_size
