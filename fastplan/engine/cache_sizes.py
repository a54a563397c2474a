"""Options that differ in the size of their cache: the search space of offload plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.problem import Floats, Ints, SearchSpace
from fastplan.engine.solve import estimate
from fastplan.model.ids import Curve
from fastplan.model.plan import AS_REQUESTED, PlanRecord
from fastplan.model.request import HardwareCosts, MenuItem, Request, Table

CACHED = "fused_uvm_caching"
# A cache of FBGEMM has sets of 32 rows.
_FEWEST_ROWS = 32
_SMALLEST = 1e-3
LARGEST = 0.99  # TorchRec wants load factors below 1
_CANDIDATES = 33  # sizes that a curve is looked at
_EXPONENTS = np.linspace(1.0, 0.0, _CANDIDATES)
_MOST_SIZES = 8
# Sizes beside one that a plan has.
_NEAR = (0.25, 0.5, 0.75, 0.9, 1.1, 1.35, 2.0, 4.0)
# Misses of uniform ids fall with the size at one rate: no size is better than another.
_UNIFORM_SIZES = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.75, LARGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedSpace:
    """A search space with several cache sizes for each table.

    Attributes:
        space: the options of the request, and after them those with other sizes, table by table.
        load_factor: by option, or AS_REQUESTED.
        table: by option.
        request: the request of all these options, with a table for each size.
    """

    space: SearchSpace
    load_factor: Floats
    table: Ints
    request: Request

    def own_options(self, own: SearchSpace, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the numbers here of options in the request's own space."""
        tables = np.searchsorted(own.table_option_begin, numbers, side="right") - 1
        offset = numbers - own.table_option_begin[tables]
        return np.asarray(self.space.table_option_begin[tables] + offset, np.int32)

    def options_of(self, request: Request, record: PlanRecord) -> NDArray[np.int32]:
        """Returns the numbers of a plan's options, whose sizes must be on offer."""
        found = []
        for table, kind, kernel, factor in zip(
            record.table.tolist(),
            record.sharding_type.tolist(),
            record.kernel.tolist(),
            record.load_factor.tolist(),
            strict=True,
        ):
            begin, end = self.space.table_option_begin[table : table + 2]
            same = (self.space.option_type[begin:end] == kind) & (
                self.space.option_kernel[begin:end] == kernel
            )
            if math.isnan(factor) or factor == request.tables[table].cache_ratio:
                same &= np.isnan(self.load_factor[begin:end])
            else:
                same &= self.load_factor[begin:end] == factor
            found.append(begin + int(same.argmax()))
        return np.array(found, np.int32)


def can_resize(request: Request, table: int) -> bool:
    """Returns whether the request has the costs of a table for every size of its cache.

    TorchRec's cache statistics are one miss rate, of one size.
    """
    costs = request.hardware
    if costs is None or request.pricing is not None:
        return False
    return costs.has_statistics(table) or math.isnan(request.tables[table].miss_rate)


def resized(table: Table, load_factor: float) -> Table:
    """Returns the table with another size of its cache."""
    return table._replace(cache_ratio=load_factor, miss_rate=math.nan)


def sized_space(request: Request, near: PlanRecord | None = None) -> SizedSpace:
    """Returns the search space of a request with hardware costs, with several cache sizes.

    Args:
        request: the request.
        near: a plan. Tables that have a cache in it are offered sizes near theirs.

    Raises:
        OutOfRange: exact arithmetic would need larger numbers than the core has.
    """
    costs = request.hardware
    assert costs is not None
    menus = list(request.menus)
    cached_menu: dict[int, int | None] = {}
    for number, menu in enumerate(request.menus):
        own = tuple(item for item in menu if item.kernel == CACHED)
        cached_menu[number] = len(menus) if own else None
        if own:
            menus.append(own)
    known: dict[tuple[Curve | None, int], tuple[float, ...]] = {}
    present = {} if near is None else _sizes_in(near)
    numbers: list[int] = []
    tables: list[Table] = []
    sizes: list[float] = []
    for number, table in enumerate(request.tables):
        numbers.append(number)
        tables.append(table)
        sizes.append(AS_REQUESTED)
        with_cache = cached_menu[table.menu]
        if with_cache is None or not can_resize(request, number):
            continue
        curve = _misses(costs, number)
        key = curve, table.rows
        if number in present:
            offered = _sizes_near(present[number], table.rows)
        else:
            if key not in known:
                known[key] = sizes_of(curve, table.rows)
            offered = known[key]
        for size in offered:
            if size != table.cache_ratio:
                numbers.append(number)
                tables.append(resized(table, size).with_menu(with_cache))
                sizes.append(size)
    return _grouped(request, tuple(menus), tables, np.array(numbers), np.array(sizes))


def _grouped(
    request: Request,
    menus: tuple[tuple[MenuItem, ...], ...],
    tables: list[Table],
    numbers: Ints,
    sizes: Floats,
) -> SizedSpace:
    """Estimates tables that stand for sizes of one, and groups their options by table."""
    assert request.hardware is not None
    costs = request.hardware.for_tables(numbers.tolist())
    made = replace(request, tables=tuple(tables), menus=menus, hardware=costs)
    space = estimate(made)
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    options = np.diff(space.table_option_begin)
    assert space.step is not None
    step = replace(space.step, table_pooled=space.step.table_pooled[first])
    return SizedSpace(
        space=replace(
            space,
            table_option_begin=np.append(space.table_option_begin[first], space.options),
            table_module=space.table_module[first],
            table_group=space.table_group[first],
            step=replace(step, statistics=sum(own is not None for own in request.hardware.ids)),
        ),
        load_factor=np.repeat(sizes, options),
        table=np.repeat(numbers, options),
        request=made,
    )


def _misses(costs: HardwareCosts, table: int) -> Curve | None:
    own = costs.ids[table] if costs.ids else None
    return None if own is None else own.misses


def _sizes_in(record: PlanRecord) -> dict[int, float]:
    """Returns the sizes of a plan's caches, by table."""
    pairs = zip(record.table.tolist(), record.load_factor.tolist(), strict=True)
    return {table: size for table, size in pairs if not math.isnan(size)}


def _sizes_near(size: float, rows: int) -> tuple[float, ...]:
    least = _least_size(rows)
    near = {min(max(size * factor, least), LARGEST) for factor in _NEAR}
    return tuple(sorted({size, *near}))


def _least_size(rows: int) -> float:
    return min(max(_SMALLEST, _FEWEST_ROWS / max(rows, 1)), LARGEST)


def sizes_of(curve: Curve | None, rows: int) -> tuple[float, ...]:
    """Returns the sizes of a cache to choose from, as shares of the table's rows.

    They are corners of the lower convex hull of misses by rows: between two of them, a cache gains
    less per row than at a corner. The largest holds nearly every row.

    Args:
        curve: the share of ids that a cache of so many rows misses; None for uniform ids.
        rows: of the table.
    """
    least = _least_size(rows)
    if curve is None:
        return tuple(size for size in _UNIFORM_SIZES if size >= least) or (LARGEST,)
    exponents = np.log(least / LARGEST) * _EXPONENTS + np.log(LARGEST)
    size = np.exp(exponents).tolist()
    missed = np.interp(exponents + np.log(rows), np.log(curve.x), curve.y).tolist()
    corners = _lower_hull(size, missed)
    if len(corners) > _MOST_SIZES:
        # Evenly by what they miss: that is what they differ in.
        first, last = missed[corners[0]], missed[corners[-1]]
        wanted = [first + (last - first) * i / (_MOST_SIZES - 1) for i in range(_MOST_SIZES)]
        near = {min(corners, key=lambda i: abs(missed[i] - at)) for at in wanted}
        corners = sorted(near)
    return tuple(size[i] for i in corners)


def _lower_hull(x: list[float], y: list[float]) -> list[int]:
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    # A larger cache that misses as much is of no use.
    return [i for n, i in enumerate(hull) if n == 0 or y[i] < y[hull[n - 1]]]
