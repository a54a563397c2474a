"""The basis of a plan in a plan file: request, capacities and rating.

Options, ranks and the order of tables are in the file's modules. Both parts must describe the same
plan, else the file is invalid.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastplan.cache.entry import (
    MAX_CERTIFICATE,
    capacities_of,
    certificate_bytes,
    certificate_text,
)
from fastplan.cache.fingerprint import canonical_json, fingerprint, parse_document
from fastplan.engine.layout import ChosenSpace, chosen_space, cuts_of, table_shards
from fastplan.engine.problem import Ints, SearchSpace
from fastplan.engine.solve import OutOfRange
from fastplan.model.cuts import Cut, cut_of, merged
from fastplan.model.plan import AS_REQUESTED, NO_LOAD_FACTOR, BadRecord, Basis, PlanRecord
from fastplan.model.request import Cluster, Request, Table
from fastplan.model.vocabulary import (
    KERNEL_INDEX,
    KERNELS,
    SHARDING_TYPE_INDEX,
    SHARDING_TYPES,
    UNIFORM_TYPES,
)
from fastplan.plans.checks import (
    LARGEST,
    BadValue,
    as_list,
    as_object,
    as_whole,
    below,
    check_fields,
    refuse,
)
from fastplan.plans.document import Document, Ranks, check_known_ranks, check_ranks
from fastplan.plans.entries import MOST_RANKS, TableEntry, listed_shards

_REQUIRED = ("capacities", "rating", "request")
_FIELDS = ("capacities", "rating", "order", "load_factors", "certificate", "request")
_FIELD_NAMES = {"kernel": "compute_kernel"}
_UNIFORM = [SHARDING_TYPE_INDEX[name] for name in UNIFORM_TYPES]
_key_of = attrgetter("path", "name")
_NO_FACTOR = "none"  # the table's cache has no load factor, though the request has


def basis_json(basis: Basis, order: list[int]) -> dict[str, Any]:
    """Returns the field `basis` of a plan file.

    Args:
        basis: The basis.
        order: For each table of the plan, its position in the modules.
    """
    record = basis.record
    fields: dict[str, Any] = {
        "capacities": [list(run) for run in capacities_of(basis.cluster)],
        "rating": record.rating.hex(),
    }
    if order != list(range(len(order))):
        fields["order"] = order
    if not np.isnan(record.load_factor).all():
        fields["load_factors"] = [_factor_json(factor) for factor in record.load_factor.tolist()]
    if basis.certificate:
        fields["certificate"] = certificate_text(basis.certificate)
    fields["request"] = json.loads(basis.canonical)
    return fields


class ReadBasis(NamedTuple):
    """The basis of a plan file, its tables in the order of the plan, and the space of options."""

    basis: Basis
    entries: list[TableEntry]
    chosen: ChosenSpace


def read_basis(document: Document, *, checked: bool = False) -> ReadBasis | None:
    """Returns the basis of a file's plan; None without a basis.

    Args:
        document: The content of the file.
        checked: Whether its tables have passed `check_ranks` without a cluster.

    Raises:
        BadValue: The basis is malformed, or does not describe the file's tables.
    """
    if document.basis is None:
        return None
    fields = document.basis
    check_fields(fields, _FIELDS, "basis", _REQUIRED)
    request, canonical, facts = _request(fields["request"], document.fingerprint)
    cluster = _cluster(fields["capacities"], facts)
    order = _order(fields.get("order"), len(document.entries))
    entries = [document.entries[i] for i in order]
    record = PlanRecord(
        table=np.array(_tables(request, entries), np.int32),
        sharding_type=_indices(SHARDING_TYPE_INDEX, entries, "sharding_type"),
        kernel=_indices(KERNEL_INDEX, entries, "kernel"),
        load_factor=np.array(_factors(fields.get("load_factors"), len(entries)), np.float64),
        ranks=_ranks(entries, len(cluster.rank_hbm)),
        rating=_rating(fields["rating"]),
    )
    basis = Basis(
        canonical=canonical,
        request=request,
        cluster=cluster,
        record=record,
        certificate=_certificate(fields.get("certificate")),
    )
    chosen = check_agreement(basis, entries)
    check = check_known_ranks if checked else check_ranks
    check(entries, Ranks(len(cluster.rank_hbm), cluster.group_size))
    return ReadBasis(basis, entries, chosen)


def check_agreement(basis: Basis, entries: list[TableEntry]) -> ChosenSpace:
    """Checks that the entries are the plan of the basis, and returns the space of their options.

    Raises:
        BadValue: A table differs. The message names it.
    """
    record = basis.record
    if len(entries) != len(record.table):
        raise BadValue("modules", f"must have the {len(record.table)} tables of `basis`")
    try:
        tables, space = chosen_space(basis.request, record)
    except (BadRecord, OutOfRange, TypeError) as error:
        raise BadValue("basis.request", f"does not allow the plan: {error}") from error
    counts = table_shards(space)
    is_uniform = np.isin(record.sharding_type, _UNIFORM)
    ends = np.cumsum(np.where(is_uniform, 0, counts))
    numbers = _not_plain(entries, tables, space, record, ends)
    for number, cut in zip(numbers, cuts_of(tables, space, numbers), strict=True):
        entry, table, count = entries[number], tables[number], int(counts[number])
        if (entry.path, entry.name) != (table.path, table.name):
            raise BadValue(entry.place, f"is where `basis` has table {table.name}")
        planned = _kind(record, number)
        if (entry.sharding_type, entry.kernel) != planned:
            raise BadValue(entry.place, f"is ({', '.join(planned)}) by `basis`")
        _check_cut(entry, cut, (table.rows, table.dim))
        if entry.sharding_type in UNIFORM_TYPES:
            if not _is_every_rank(entry, count):
                refuse(below(entry.place, "ranks"), f"0-{count - 1}, as `basis` says", entry.ranks)
        else:
            expected = record.ranks[ends[number] - count : ends[number]].tolist()
            if entry.all_ranks() != expected:
                refuse(below(entry.place, "ranks"), f"{expected}, as `basis` says", entry.ranks)
    if ends[-1] != len(record.ranks):
        raise BadValue("basis", f"has {len(record.ranks)} ranks for {ends[-1]} shards")
    return ChosenSpace(tables, space)


def _not_plain(
    entries: list[TableEntry],
    tables: tuple[Table, ...],
    space: SearchSpace,
    record: PlanRecord,
    ends: Ints,
) -> list[int]:
    """Returns the numbers of the entries that are not a whole table on the rank of the record.

    Most tables of a large plan are not split, and are compared as columns. `ends` counts the ranks
    of the record up to the end of each table.
    """
    first = space.option_run_begin[:-1]
    single = (table_shards(space) == 1) & (ends <= len(record.ranks)) & (ends > 0)
    rank = record.ranks[np.where(single, ends - 1, 0)] if len(record.ranks) else ends
    expected = zip(
        single.tolist(),
        record.sharding_type.tolist(),
        record.kernel.tolist(),
        space.run_rows[first].tolist(),
        space.run_cols[first].tolist(),
        rank.tolist(),
        strict=True,
    )
    return [
        number
        for number, (entry, table, (is_single, kind, kernel, rows, columns, at)) in enumerate(
            zip(entries, tables, expected, strict=True)
        )
        if not (
            is_single
            and kind not in _UNIFORM
            and entry.cut == (((1, rows),), ((1, columns),))
            and entry.ranks == ((at, at),)
            and entry.sharding_type == SHARDING_TYPES[kind]
            and entry.kernel == KERNELS[kernel]
            and entry.name == table.name
            and entry.path == table.path
        )
    ]


def _kind(record: PlanRecord, number: int) -> tuple[str, str]:
    return SHARDING_TYPES[record.sharding_type[number]], KERNELS[record.kernel[number]]


def _check_cut(entry: TableEntry, cut: Cut | None, shape: tuple[int, int]) -> None:
    """Raises BadValue unless the table is split as its option splits it."""
    found = entry.cut
    if entry.listed is not None:
        found = cut_of(listed_shards(entry))
    if found is None or cut is None:
        if found is not cut or entry.listed is not None:
            raise BadValue(entry.place, "has shards that don't match its sharding type in `basis`")
        return
    if found.shape != shape:
        refuse(below(entry.place, "shape"), f"{list(shape)}, as `basis` says", list(found.shape))
    if Cut(merged(found.rows), merged(found.columns)) != cut:
        raise BadValue(entry.place, "is split at other rows or columns than in `basis`")


def _is_every_rank(entry: TableEntry, count: int) -> bool:
    expected = 0
    for first, last in entry.ranks or ():
        if first != expected:
            return False
        expected = last + 1
    return expected == count


def _request(value: Any, key: str | None) -> tuple[Request, bytes, dict[str, Any]]:
    try:
        canonical = canonical_json(as_object(value, "basis.request"))
    except ValueError as error:
        raise BadValue("basis.request", f"is not a request: {error}") from error
    found = fingerprint(canonical)
    if found != key:
        refuse("fingerprint", f"that of `basis.request`, {found}", key)
    try:
        request, facts = parse_document(value)
    except ValueError as error:
        raise BadValue("basis.request", str(error)) from error
    return request, canonical, facts


def _cluster(value: Any, facts: dict[str, Any]) -> Cluster:
    place = "basis.capacities"
    by_rank: list[tuple[int, int, int]] = []
    for i, run in enumerate(as_list(value, place)):
        own = f"{place}[{i}]"
        if len(as_list(run, own)) != 4:
            refuse(own, "four numbers: ranks, and bytes of hbm, ddr and ssd", run)
        count, *sizes = (as_whole(item, f"{own}[{j}]", -LARGEST) for j, item in enumerate(run))
        if not 1 <= count <= MOST_RANKS - len(by_rank):
            refuse(f"{own}[0]", f"1 to {MOST_RANKS - len(by_rank)} ranks", count)
        by_rank += [(sizes[0], sizes[1], sizes[2])] * count
    if len(by_rank) != facts["ranks"] or not by_rank:
        refuse(place, f"the capacities of {facts['ranks']} ranks", len(by_rank))
    hbm, ddr, ssd = zip(*by_rank, strict=True)
    hosts = {}
    for name in ("local_world_size", "group_size"):
        own = f"basis.request.context.{name}"
        hosts[name] = as_whole(facts["context"].get(name), own, 1)
    return Cluster(rank_hbm=hbm, rank_ddr=ddr, rank_ssd=ssd, **hosts)


def _order(value: Any, count: int) -> list[int]:
    if value is None:
        return list(range(count))
    order = as_list(value, "basis.order")
    if {*map(type, order)} != {int} or sorted(order) != list(range(count)):
        refuse("basis.order", f"the numbers 0 to {count - 1}, each once", value)
    return order


def _tables(request: Request, entries: list[TableEntry]) -> list[int]:
    """Returns the index of each table in the request."""
    numbers = dict(zip(map(_key_of, request.tables), range(len(request.tables)), strict=True))
    found: list[Any] = [*map(numbers.get, map(_key_of, entries))]
    if len(found) == len(numbers) and {*found} == {*numbers.values()}:
        return found
    found = []
    for entry in entries:
        number = numbers.pop((entry.path, entry.name), None)
        if number is None:
            raise BadValue(entry.place, "is not a table of `basis.request`")
        found.append(number)
    for path, name in numbers:
        raise BadValue(below(below("modules", path), name), "is missing, `basis.request` has it")
    return found


def _indices(known: dict[str, int], entries: list[TableEntry], field: str) -> NDArray[np.uint8]:
    names = [*map(attrgetter(field), entries)]
    for entry, name in zip(entries, names, strict=True) if {*names} - known.keys() else ():
        if name not in known:
            place = below(entry.place, _FIELD_NAMES.get(field, field))
            refuse(place, f"one of {', '.join(known)}, because the file has a `basis`", name)
    return np.array([*map(known.__getitem__, names)], np.uint8)


def _ranks(entries: list[TableEntry], ranks: int) -> Any:
    """Returns the ranks of the shards that are not uniform."""
    found: list[int] = []
    for entry in entries:
        is_uniform = entry.sharding_type in UNIFORM_TYPES
        for i, (first, last) in enumerate(entry.ranks or ()):
            if last >= ranks:
                refuse(f"{below(entry.place, 'ranks')}[{i}]", f"below {ranks}, the ranks", last)
            if not is_uniform:
                found += range(first, last + 1)
    return np.array(found, np.int32)


def _factors(value: Any, count: int) -> list[float]:
    if value is None:
        return [AS_REQUESTED] * count
    place = "basis.load_factors"
    factors = as_list(value, place)
    if len(factors) != count:
        refuse(place, f"one value per table, {count}", len(factors))
    return [_factor(factor, f"{place}[{i}]") for i, factor in enumerate(factors)]


def _factor(value: Any, place: str) -> float:
    if value is None:
        return AS_REQUESTED
    if value == _NO_FACTOR:
        return NO_LOAD_FACTOR
    if type(value) not in (int, float) or not 0 <= value <= 1:
        refuse(place, f"a number from 0 to 1, null or {_NO_FACTOR!r}", value)
    return float(value)


def _factor_json(factor: float) -> float | str | None:
    if math.isnan(factor):
        return None
    return _NO_FACTOR if factor == NO_LOAD_FACTOR else factor


def _certificate(text: Any) -> bytes:
    if text is None:
        return b""
    found = certificate_bytes(text)
    if not found:
        refuse("basis.certificate", f"base64 of at most {MAX_CERTIFICATE} bytes", text)
    return found


def _rating(text: Any) -> float:
    """Parses a rating. It is hexadecimal, so that any JSON reader keeps every bit."""
    value = math.nan
    if type(text) is str:
        with suppress(ValueError, OverflowError):
            value = float.fromhex(text)
    if not 0 <= value < math.inf or value.hex() != text:
        refuse("basis.rating", "a finite hexadecimal float", text)
    return value
