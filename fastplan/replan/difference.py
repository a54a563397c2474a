"""What differs between the request of an older plan and a new one, by table and by rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from fastplan.plans.plan import Plan
from fastplan.replan.ranks import LOST, RankMap
from fastplan.spec.request import Cluster, Request, Table

_SHAPE = ("rows", "dim", "element_size")
_CONSTRAINTS = ("min_partition", "buckets", "tower")
_APART = ("name", "path", "menu", "bytes", *_SHAPE, *_CONSTRAINTS)
_MAYBE_NAN = ("expected_lookups", "miss_rate")
_COST = tuple(name for name in Table._fields if name not in (*_APART, *_MAYBE_NAN))

_NOT_SHOWN = 5
_CAPACITY_NOISE = 0.01


class WrongModel(ValueError):
    """A previous plan that has no table of the model."""


class FieldChange(NamedTuple):
    """A field of a table that has another value now."""

    table: str
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.table}: {self.field} {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What has changed; tables are named `path.name`."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int  # tables in both plans
    resized: tuple[FieldChange, ...]  # rows, columns, element size
    drifted: tuple[FieldChange, ...]  # what costs depend on, such as pooling and batch size
    constrained: tuple[FieldChange, ...]  # what is allowed
    lost_ranks: tuple[int, ...]  # old numbers
    new_ranks: tuple[int, ...]  # new numbers of ranks that were not there
    renumbered: tuple[tuple[int, int], ...]  # old and new number of ranks that have another one
    resized_ranks: tuple[int, ...]  # new numbers of ranks whose memory is another one
    ranks_per_host: tuple[int, int] | None  # before and after, where that differs
    cost_model: bool  # bandwidths or other constants of the cost model differ
    compared: bool  # False where the previous plan does not tell costs and constraints

    @property
    def changed_tables(self) -> frozenset[str]:
        """Tables of the new request that are new or not as they were."""
        fields = (*self.resized, *self.drifted, *self.constrained)
        return frozenset((*self.added, *(change.table for change in fields)))

    @property
    def same_ranks(self) -> bool:
        """Whether the same ranks are where they were."""
        return not (self.lost_ranks or self.new_ranks or self.renumbered or self.ranks_per_host)

    def __str__(self) -> str:
        return "; ".join(self._parts()) or "nothing differs"

    def _parts(self) -> Iterator[str]:
        named = (("added", self.added), ("removed", self.removed))
        for word, names in named:
            if names:
                yield f"{len(names)} tables {word} ({_some(names)})"
        groups = (
            ("resized", self.resized),
            ("with other costs", self.drifted),
            ("with other constraints", self.constrained),
        )
        for word, changes in groups:
            if changes:
                names = tuple(dict.fromkeys(change.table for change in changes))
                yield f"{len(names)} tables {word} ({_some(names)})"
        ranks = (
            ("lost", self.lost_ranks),
            ("new", self.new_ranks),
            ("with other memory", self.resized_ranks),
        )
        for word, numbers in ranks:
            if numbers:
                yield f"{len(numbers)} ranks {word} ({_some(numbers)})"
        if self.renumbered:
            yield f"{len(self.renumbered)} ranks renumbered"
        if self.ranks_per_host:
            yield "{} -> {} ranks per host".format(*self.ranks_per_host)
        if self.cost_model:
            yield "another cost model"


def difference(previous: Plan, request: Request, cluster: Cluster, ranks: RankMap) -> Difference:
    """What has changed since the previous plan, whose rank r is rank `ranks[r]` of the cluster.

    Raises WrongModel, with names, when no table is the same.
    """
    new = {table_name(table.path, table.name): table for table in request.tables}
    old = [table_name(table.path, table.name) for table in previous.layout.tables]
    both = [name for name in old if name in new]
    if not both:
        raise WrongModel(
            f"no table of the previous plan `{previous.name}` ({_some(tuple(old))}) is a table of "
            f"the model ({_some(tuple(new))}); give the plan of this model, or none"
        )
    old_names = frozenset(old)
    basis = previous.basis
    resized, drifted, constrained = _changes(previous, request, new, frozenset(both))
    moved_to = {after for after in ranks if after != LOST}
    return Difference(
        added=tuple(name for name in new if name not in old_names),
        removed=tuple(name for name in old if name not in new),
        kept=len(both),
        resized=resized,
        drifted=drifted,
        constrained=constrained,
        lost_ranks=tuple(rank for rank, after in enumerate(ranks) if after == LOST),
        new_ranks=tuple(r for r in range(len(cluster.rank_hbm)) if r not in moved_to),
        renumbered=tuple((r, after) for r, after in enumerate(ranks) if after not in (LOST, r)),
        resized_ranks=() if basis is None else _resized_ranks(basis.cluster, cluster, ranks),
        ranks_per_host=_hosts(previous, cluster),
        cost_model=basis is not None and _constants(basis.request) != _constants(request),
        compared=basis is not None,
    )


def table_name(path: str, name: str) -> str:
    """What a table is called in reports."""
    return f"{path}.{name}" if path else name


def _some(names: tuple[Any, ...]) -> str:
    shown = ", ".join(map(str, names[:_NOT_SHOWN]))
    return shown if len(names) <= _NOT_SHOWN else f"{shown} and {len(names) - _NOT_SHOWN} more"


Changes = tuple[FieldChange, ...]


def _changes(
    previous: Plan, request: Request, new: dict[str, Table], both: frozenset[str]
) -> tuple[Changes, Changes, Changes]:
    if previous.basis is None:
        return _shape_changes(previous, new, both), (), ()
    before = previous.basis.request
    old = {table_name(table.path, table.name): table for table in before.tables}
    groups = (_SHAPE, _COST, _CONSTRAINTS)
    found: tuple[list[FieldChange], ...] = ([], [], [])
    getters = [itemgetter(*map(Table._fields.index, names)) for names in groups]
    facts, nan = (
        itemgetter(*map(Table._fields.index, names))
        for names in (_SHAPE + _COST + _CONSTRAINTS, _MAYBE_NAN)
    )
    options = [[_options(menu) for menu in each.menus] for each in (before, request)]
    for name, table in new.items():
        if name not in both:
            continue
        was = old[name]
        same_menu = options[0][was.menu] == options[1][table.menu]
        if same_menu and facts(was) == facts(table) and all(map(_same, nan(was), nan(table))):
            continue
        for names, get, changes in zip(groups, getters, found, strict=True):
            if get(was) != get(table):
                changes += _field_changes(name, names, was, table)
        found[1].extend(_field_changes(name, _MAYBE_NAN, was, table))
        allowed = options[0][was.menu], options[1][table.menu]
        if allowed[0] != allowed[1]:
            found[2].append(FieldChange(name, "options", *map(sorted, allowed)))
    return tuple(found[0]), tuple(found[1]), tuple(found[2])


def _field_changes(name: str, fields: tuple[str, ...], old: Table, new: Table) -> Iterator[Any]:
    for field in fields:
        values = getattr(old, field), getattr(new, field)
        if not _same(*values):
            yield FieldChange(name, field, *values)


def _same(old: Any, new: Any) -> bool:
    """NaN is the same as NaN: it stands for a number that is not given."""
    return bool(old == new or (old != old and new != new))


def _shape_changes(previous: Plan, new: dict[str, Table], both: frozenset[str]) -> Changes:
    """What the layout alone tells."""
    found = []
    for table in previous.layout.tables:
        name = table_name(table.path, table.name)
        if name in both and table.shape is not None:
            now = new[name].rows, new[name].dim
            sizes = zip(("rows", "dim"), table.shape, now, strict=True)
            found += [FieldChange(name, f, old, size) for f, old, size in sizes if old != size]
    return tuple(found)


def _options(menu: Any) -> frozenset[str]:
    return frozenset(f"{item.sharding_type} {item.kernel}" for item in menu)


def _constants(request: Request) -> Any:
    """The cost model but for the sizes that follow from the ranks."""
    cost = request.cost
    return [getattr(cost, name) for name in cost.__slots__ if not name.endswith("_size")]


def _resized_ranks(old: Cluster, new: Cluster, ranks: RankMap) -> tuple[int, ...]:
    def memory(cluster: Cluster, rank: int) -> tuple[int, int, int]:
        return cluster.rank_hbm[rank], cluster.rank_ddr[rank], cluster.rank_ssd[rank]

    pairs = ((r, after) for r, after in enumerate(ranks) if after != LOST)
    return tuple(after for r, after in pairs if _differs(memory(old, r), memory(new, after)))


def _differs(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """By more than what is reserved for inputs differs from one model to the next."""
    sizes = zip(old, new, strict=True)
    return any(abs(a - b) > _CAPACITY_NOISE * max(abs(a), abs(b)) for a, b in sizes)


def _hosts(previous: Plan, cluster: Cluster) -> tuple[int, int] | None:
    before = previous.layout.ranks_per_host
    if previous.basis is not None:
        before = previous.basis.cluster.local_world_size
    if before is None or before == cluster.local_world_size:
        return None
    return before, cluster.local_world_size
