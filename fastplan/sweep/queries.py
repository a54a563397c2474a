"""Queries on a sweep: smallest cluster, cheapest cluster, savings of a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from fastplan.sweep.rows import Row, SweepResult


class UnknownValue(ValueError):
    """A query names a value that is not in the sweep. The message lists the values."""


class MissingPrice(ValueError):
    """A query needs the price of a SKU, which is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The smallest cluster that fits, for one model on one SKU; `row` is None if none fits."""

    model: str
    sku: str
    batch: int
    precision: str
    row: Row | None
    largest: Row  # the largest cluster that was tried
    unknown: tuple[int, ...]  # smaller sizes without an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheapest:
    """The cheapest cluster that is fast enough for one model; `row` is None if none is."""

    model: str
    batch: int
    precision: str
    row: Row | None
    price: float | None  # per rank and hour
    cost: float | None  # per hour, of the cluster
    best: Row | None  # the fastest at any price; None if nothing fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A precision compared with a reference precision, for one model on one SKU.

    The comparison uses the smallest cluster on which every precision fits, if any.
    """

    model: str
    sku: str
    batch: int
    precision: str
    against: str
    smallest: int | None  # smallest number of ranks that fits
    row: Row | None
    reference: Row | None

    @property
    def memory(self) -> float | None:
        """Memory on all ranks, relative to the reference."""
        if self.row is None or self.reference is None or not memory_of(self.reference):
            return None
        return memory_of(self.row) / memory_of(self.reference)

    @property
    def rating(self) -> float | None:
        """The rating relative to the reference's; below 1 is faster."""
        if self.row is None or self.reference is None or not self.reference.rating:
            return None
        return (self.row.rating or 0.0) / self.reference.rating


def no_price(skus: Sequence[str]) -> MissingPrice:
    """Returns the error for SKUs without a price."""
    return MissingPrice(
        f"the price of {' and '.join(skus)} is not known: pass the price per rank and hour as "
        f"`--price {skus[0]}=2.5`, or as `price` in a SKU file"
    )


def memory_of(row: Row) -> int:
    """Returns the bytes that a plan needs on all ranks, in all tiers of memory."""
    return (row.hbm_bytes or 0) + (row.ddr_bytes or 0) + (row.ssd_bytes or 0)


def smallest_cluster(
    result: SweepResult,
    *,
    model: str | None = None,
    sku: str | None = None,
    batch: int | None = None,
    precision: str | None = None,
) -> list[Smallest]:
    """Finds the smallest number of ranks that fits, for each model, SKU, batch and precision.

    Args:
        result: The sweep.
        model: Only this model; None: every model.
        sku: Only this SKU; None: every SKU.
        batch: Only this batch; None: every batch.
        precision: Only this precision; None: every precision.

    Raises:
        UnknownValue: The sweep does not have such a value.
    """
    chosen = _chosen(result.rows, model=model, sku=sku, batch=batch, precision=precision)
    answers = []
    for key, rows in _groups(chosen, "model", "sku", "batch", "precision").items():
        by_size = sorted(rows, key=attrgetter("world_size"))
        first = next((row for row in by_size if row.fits), None)
        answers.append(
            Smallest(
                **_named(key, "model", "sku", "batch", "precision"),
                row=first,
                largest=by_size[-1],
                unknown=tuple(
                    row.world_size
                    for row in by_size
                    if row.fits is None and (first is None or row.world_size < first.world_size)
                ),
            )
        )
    return answers


def cheapest(
    result: SweepResult,
    *,
    rating: float,
    prices: Mapping[str, float] | None = None,
) -> list[Cheapest]:
    """Finds the cheapest SKU and size with a rating of at most `rating` milliseconds.

    Plans with hardware costs are compared by their predicted step instead of the rating.
    There is one answer for each model, batch and precision. Of equal costs, the faster one wins.
    `prices`, per rank and hour, take precedence over those of the SKUs.

    Raises:
        MissingPrice: A SKU that is fast enough has no price.
    """
    known = {**result.prices, **(prices or {})}
    answers = []
    for key, rows in _groups(result.rows, "model", "batch", "precision").items():
        fitting = [row for row in rows if row.fits and row.time is not None]
        enough = [row for row in fitting if (row.time or 0.0) <= rating]
        missing = sorted({row.sku for row in enough} - known.keys())
        if missing:
            raise no_price(missing)
        by_cost = _by_cost(known)
        row = min(enough, key=by_cost, default=None)
        answers.append(
            Cheapest(
                **_named(key, "model", "batch", "precision"),
                row=row,
                price=None if row is None else known[row.sku],
                cost=None if row is None else by_cost(row)[0],
                best=min(fitting, key=attrgetter("time"), default=None),
            )
        )
    return answers


def savings(result: SweepResult) -> list[Saving]:
    """Compares each precision with fp32, or with the first one; empty for a single precision."""
    precisions = list(dict.fromkeys(row.precision for row in result.rows))
    if len(precisions) < 2:
        return []
    against = "fp32" if "fp32" in precisions else precisions[0]
    found = []
    for key, rows in _groups(result.rows, "model", "sku", "batch").items():
        fits = {(row.precision, row.world_size): row for row in rows if row.fits}
        sizes = sorted({row.world_size for row in rows})
        of_all = {row.precision for row in rows}
        if len(of_all) < 2:  # a shard may have only one
            continue
        common = next((n for n in sizes if all((each, n) in fits for each in of_all)), None)
        for precision in dict.fromkeys(row.precision for row in rows):
            found.append(
                Saving(
                    **_named(key, "model", "sku", "batch"),
                    precision=precision,
                    against=against,
                    smallest=next((n for n in sizes if (precision, n) in fits), None),
                    row=None if common is None else fits[precision, common],
                    reference=None if common is None else fits.get((against, common)),
                )
            )
    return found


def _by_cost(prices: Mapping[str, float]) -> Callable[[Row], tuple[float, float]]:
    return lambda row: (prices[row.sku] * row.world_size, row.time or 0.0)


def _chosen(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Returns the rows with these values. Raises UnknownValue for a value that no row has."""
    rows = list(rows)
    given = {n: _value(rows, n, value) for n, value in wanted.items() if value is not None and rows}
    return [row for row in rows if all(getattr(row, n) == value for n, value in given.items())]


def _value(rows: list[Row], name: str, wanted: Any) -> Any:
    """Returns the value as spelled in the rows; case is ignored."""
    there = list(dict.fromkeys(getattr(row, name) for row in rows))
    if wanted in there:
        return wanted
    alike = [value for value in there if str(value).lower() == str(wanted).lower()]
    if len(alike) == 1:
        return alike[0]
    listed = ", ".join(map(str, there))
    raise UnknownValue(f"`{name}` must be one of those in the sweep, {listed}, not {wanted!r}")


def _groups(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return groups


def _named(key: tuple[Any, ...], *names: str) -> dict[str, Any]:
    return dict(zip(names, key, strict=True))
