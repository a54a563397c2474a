"""What differs between the request of an older plan and a new one, by table and by rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from fastplan.plans.plan import Plan
from fastplan.replan.held import Key, key_of
from fastplan.replan.ranks import LOST, RankMap
from fastplan.spec.request import Cluster, Request, Table

_SHAPE = ("rows", "dim", "element_size")
_CONSTRAINTS = ("min_partition", "buckets", "tower")
_APART = ("name", "path", "menu", "bytes", *_SHAPE, *_CONSTRAINTS)
_COST = tuple(name for name in Table._fields if name not in _APART)

_facts_of = itemgetter(*map(Table._fields.index, _SHAPE + _COST + _CONSTRAINTS))
_NOT_SHOWN = 5
_CAPACITY_NOISE = 0.01


Options = frozenset[str]


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
    changed: frozenset[int]  # numbers of the request's tables that are new or not as they were
    lost_ranks: tuple[int, ...]  # old numbers
    new_ranks: tuple[int, ...]  # new numbers of ranks that were not there
    renumbered: tuple[tuple[int, int], ...]  # old and new number of ranks that have another one
    resized_ranks: tuple[int, ...]  # new numbers of ranks whose memory is another one
    ranks_per_host: tuple[int, int] | None  # before and after, where that differs
    cost_model: bool  # bandwidths or other constants of the cost model differ
    compared: bool  # False where the previous plan does not tell costs and constraints

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
    new = dict(zip(map(key_of, request.tables), range(len(request.tables)), strict=True))
    old = dict.fromkeys(map(key_of, previous.layout.tables))
    added = [key for key in new if key not in old]
    removed = [key for key in old if key not in new]
    if len(removed) == len(old):
        raise WrongModel(
            f"no table of the previous plan `{previous.name}` ({_some(_names(removed))}) is a "
            f"table of the model ({_some(_names(added))}); give the plan of this model, or none"
        )
    basis = previous.basis
    changes = _changes(previous, request, new)
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
        cost_model=basis is not None and _constants(basis.request) != _constants(request),
        compared=basis is not None,
    )


def table_name(path: str, name: str) -> str:
    """What a table is called in reports."""
    return f"{path}.{name}" if path else name


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(table_name(*key) for key in keys)


def _some(names: tuple[Any, ...]) -> str:
    shown = ", ".join(map(str, names[:_NOT_SHOWN]))
    return shown if len(names) <= _NOT_SHOWN else f"{shown} and {len(names) - _NOT_SHOWN} more"


class _Changes:
    """What differs between tables of one name."""

    def __init__(self) -> None:
        self.resized: list[FieldChange] = []
        self.drifted: list[FieldChange] = []
        self.constrained: list[FieldChange] = []
        self.tables: frozenset[int] = frozenset()  # by number in the new request


def _changes(previous: Plan, request: Request, new: Mapping[Key, int]) -> _Changes:
    found = _Changes()
    if previous.basis is None:
        found.resized = [*_shape_changes(previous, request, new)]
        names = {change.table for change in found.resized}
        found.tables = frozenset(at for key, at in new.items() if table_name(*key) in names)
        return found
    groups = (
        (found.resized, _SHAPE),
        (found.drifted, _COST),
        (found.constrained, _CONSTRAINTS),
    )
    before = previous.basis.request
    numbers = []
    for number, was, table, allowed in _unlike(before, request):
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


def _unlike(
    old: Request, new: Request
) -> Iterator[tuple[int, Table, Table, tuple[Options, Options]]]:
    """Tables of both requests that may differ: the number in the new one, how they were and are,
    and the options that were and are allowed.

    Most tables are like before, and then nobody has to look at their fields one by one.
    """
    options = [[_options(menu) for menu in request.menus] for request in (old, new)]
    same_menu = [[was == now for now in options[1]] for was in options[0]]
    before = dict(zip(map(key_of, old.tables), old.tables, strict=True))
    pairs = zip(map(before.get, map(key_of, new.tables)), new.tables, strict=True)
    for number, (was, table) in enumerate(pairs):
        if was is None:
            continue
        alike = was == table or _facts_of(was) == _facts_of(table)
        if not alike or not same_menu[was.menu][table.menu]:
            yield number, was, table, (options[0][was.menu], options[1][table.menu])


def _field_changes(
    name: str, fields: tuple[str, ...], old: Table, new: Table
) -> Iterator[FieldChange]:
    for field in fields:
        was, now = getattr(old, field), getattr(new, field)
        # NaN is the same as NaN: it stands for a number that is not given.
        if was != now and (was == was or now == now):
            yield FieldChange(name, field, was, now)


def _shape_changes(
    previous: Plan, request: Request, new: Mapping[Key, int]
) -> Iterator[FieldChange]:
    """What the layout alone tells."""
    for table in previous.layout.tables:
        number = new.get((table.path, table.name))
        if number is not None and table.shape is not None:
            now = request.tables[number].rows, request.tables[number].dim
            name = table_name(table.path, table.name)
            for field, old, size in zip(("rows", "dim"), table.shape, now, strict=True):
                if old != size:
                    yield FieldChange(name, field, old, size)


def _options(menu: Any) -> Options:
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
