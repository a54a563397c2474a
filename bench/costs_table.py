"""The measured times in bench/measured, which the constants of the hardware costs are fitted to."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from fastplan.measure.record_estimates import match_device
from fastplan.measure.record_work import (
    ExchangeWork,
    LookupWork,
    Unknown,
    exchange_work,
    lookup_work,
    milliseconds,
)
from fastplan.measure.records import (
    COLLECTIVE_KIND,
    CollectiveRecord,
    LookupRecord,
    TimedRecord,
)
from fastplan.spec.hardware import Hardware, find_hardware

R = TypeVar("R", bound=TimedRecord)
FOLDER = Path(__file__).parent / "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured time that the hardware costs can estimate."""

    record: TimedRecord
    sku: str
    work: LookupWork | ExchangeWork
    ms: float
    configuration: str  # times of one configuration are left out together
    repository: str  # where it was published

    @property
    def is_reliable(self) -> bool:
        """Whether GPU and shape are known. Other times are shown, but not fitted."""
        return self.record.confidence != "low"

    @property
    def part(self) -> str:
        """The part of the constants that it depends on: a kernel family, or a collective."""
        if isinstance(self.record, LookupRecord):
            return {"fused": "hbm", "fused_uvm": "uvm", "fused_uvm_caching": "caching"}[
                self.record.kernel or ""
            ]
        assert isinstance(self.record, CollectiveRecord)
        assert isinstance(self.work, ExchangeWork)
        scope = "domain" if self.work.ranks <= self.work.domain_ranks else "network"
        name = (self.record.collective or "").replace("allv", "all")
        return f"{scope}_{name}"


@cache
def hardware(sku: str) -> Hardware:
    return find_hardware(sku)


def sources() -> dict[str, dict[str, str]]:
    """The sources by number: repository, place in it, commit."""
    return {row["source"]: row for row in _rows("sources.csv")}


@cache
def measured() -> tuple[Measured, ...]:
    """All times of the tables."""
    repositories = {number: row["repository"] for number, row in sources().items()}
    found = []
    for row in _rows("lookups.csv"):
        record = _record(row, LookupRecord)
        shape = (record.kernel, record.tables, record.rows_per_table, record.ids_total)
        configuration = "-".join(map(str, (record.gpu, *shape, record.dim, record.cache_rows)))
        found.append(_measured(record, configuration, repositories[row["source"]]))
    curves = {row["curve"]: row for row in _rows("curves.csv")}
    for row in _rows("collectives.csv"):
        curve = curves[row["curve"]]
        name = row["id"] or f"{curve['group']}-{row['message_bytes']}"
        fields = {**curve, **row, "id": name, "kind": COLLECTIVE_KIND}
        collective = _record(fields, CollectiveRecord)
        configuration = f"{curve['group']}-{collective.ranks}"
        found.append(_measured(collective, configuration, repositories[curve["source"]]))
    return tuple(found)


def _record(row: dict[str, str], kind: type[R]) -> R:
    given = {name: value for name, value in row.items() if value != ""}
    return msgspec.convert(given, kind, strict=False)


def _measured(record: TimedRecord, configuration: str, repository: str) -> Measured:
    sku = match_device(record.gpu).sku
    assert sku is not None, record.gpu
    work: Any
    if isinstance(record, LookupRecord):
        work = lookup_work(record)
    else:
        assert isinstance(record, CollectiveRecord)
        work = exchange_work(record, hardware(sku))
    assert not isinstance(work, Unknown), (record.id, work)
    ms = milliseconds(record)
    assert isinstance(ms, float)
    return Measured(
        record=record,
        sku=sku,
        work=work,
        ms=ms,
        configuration=configuration,
        repository=repository,
    )


def _rows(name: str) -> Sequence[dict[str, str]]:
    with open(FOLDER / name, newline="") as file:
        return list(csv.DictReader(file))
