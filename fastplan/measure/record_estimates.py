"""Estimates of measured times: TorchRec's constants, a SKU's datasheet, and the hardware costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastplan.costs.fit import Times
from fastplan.engine import _native
from fastplan.engine.solve import estimate
from fastplan.measure.record_work import (
    Unknown,
    element_size,
    exchange_times,
    exchange_work,
    lookup_times,
    lookup_work,
    milliseconds,
    optimizer_of,
)
from fastplan.measure.records import (
    COLLECTIVE_KIND,
    LOOKUP_KINDS,
    CollectiveRecord,
    LookupRecord,
    Record,
    TimedRecord,
)
from fastplan.spec import stock
from fastplan.spec.hardware import (
    Hardware,
    HardwareError,
    find_hardware,
    for_job,
    hardware_constants,
    link_speeds,
)
from fastplan.spec.lower import lower
from fastplan.spec.model import (
    CacheSpec,
    ModelSpec,
    ModuleSpec,
    ReservationSpec,
    TableSpec,
    TopologySpec,
)

TORCHREC = "torchrec"  # the SKU with TorchRec's constants

# Models whose name is enough. Memory sizes and form factors that differ are refused.
_MODELS = {
    "V100": "v100-32",
    "A100": "a100-80",
    "H100": "h100",
    "H200": "h200",
    "GH200": "gh200",
    "B200": "b200",
    "B300": "b300",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
    "MI300X": "mi300x",
    "MI350X": "mi355x",
    "MI355X": "mi355x",
    "L40S": "l40s",
}
_MEMORY = {  # in GB, as names have them
    "v100-32": {16: "v100-32", 32: "v100-32"},  # of the same speed
    "a100-80": {40: "a100-40", 80: "a100-80"},
    "h100": {80: "h100"},
}
_MODEL = re.compile(r"(?<![A-Z0-9])(GB|GH|MI|B|A|H|L|V)(\d{2,3})([A-Z]?)(?![A-Z0-9])")
_SIZE = re.compile(r"(?<![\d.])(\d{2,3}) ?GB|[AHV]\d{3}-(\d{2,3})(?!\d)")
_VAGUE = re.compile(r"unknown|class|similar|\?|\bMIG\b", re.IGNORECASE)
_OTHER_FORM = re.compile(r"PCI|\bNVL\b(?!\d)", re.IGNORECASE)


class Match(NamedTuple):
    """The SKU of a device's name, or why there is none."""

    sku: str | None
    reason: str = ""
    links_differ: bool = False  # a card with the same memory, but without NVLink


def match_device(name: str | None) -> Match:
    """Finds the SKU of a device by its name, such as `H100 SXM 80GB HBM3`.

    Names that are vague, or of a variant with another memory or other links, match nothing.

    Args:
        name: The name.
    """
    if not name:
        return Match(None, "`gpu` is missing")
    if _VAGUE.search(name):
        return Match(None, f"`{name}` does not name one device")
    models = {"".join(found) for found in _MODEL.findall(name.upper())}
    skus = {_MODELS.get(model) for model in models}
    if len(skus) != 1 or None in skus:
        return Match(None, f"`{name}` is not a known device; --sku-map can name its SKU")
    (sku,) = skus
    assert sku is not None
    sizes = {int(a or b) for a, b in _SIZE.findall(name.upper())}
    by_size = _MEMORY.get(sku)
    if by_size is not None and sizes:
        fitting = {by_size.get(size) for size in sizes}
        if len(fitting) != 1 or None in fitting:
            return Match(None, f"no SKU is a `{name}`; --sku-map can name a similar one")
        (sku,) = fitting
    if _OTHER_FORM.search(name):
        if sku != "a100-80":  # whose card has nearly the same memory
            return Match(None, f"no SKU is a `{name}`; --sku-map can name a similar one")
        return Match(sku, links_differ=True)
    return Match(sku)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEstimate:
    """A measured time and its estimates, in ms. `reason` says why some are missing."""

    record: Record
    sku: str | None = None
    measured_ms: float | None = None
    torchrec_ms: float | None = None
    datasheet_ms: float | None = None
    hardware_ms: float | None = None
    reason: str | None = None

    @property
    def what(self) -> str:
        """The kernel or collective."""
        kinds = {LookupRecord: "kernel", CollectiveRecord: "collective"}
        return getattr(self.record, kinds.get(type(self.record), ""), None) or ""

    def ratio(self, by: str) -> float | None:
        """Returns how many times the estimate differs from the measurement, at least 1.

        Args:
            by: `torchrec`, `datasheet` or `hardware`.
        """
        estimated = getattr(self, f"{by}_ms")
        if estimated is None or self.measured_ms is None or estimated <= 0:
            return None
        return max(float(estimated) / self.measured_ms, self.measured_ms / float(estimated))

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `fastplan costs check --json` prints."""
        kind = "collective" if isinstance(self.record, CollectiveRecord) else "kernel"
        return {
            "id": self.record.id,
            "kind": self.record.kind,
            "group": self.record.group,
            kind: self.what or None,
            "sku": self.sku,
            "measured_ms": self.measured_ms,
            "torchrec_ms": self.torchrec_ms,
            "datasheet_ms": self.datasheet_ms,
            "hardware_ms": self.hardware_ms,
            "reason": self.reason,
        }


def estimate_records(
    records: Sequence[Record], sku_map: Mapping[str, str] | None = None
) -> list[RecordEstimate]:
    """Estimates measured times.

    Args:
        records: The records, as `read_records` returns them.
        sku_map: SKUs by the name of a device; these override the matching by name.

    Raises:
        HardwareError: `sku_map` has an unknown SKU.
    """
    return list(map(_Estimator(sku_map or {}).estimated, records))


class _Estimator:
    """Estimates records, and keeps the hardware that they are measured on."""

    def __init__(self, sku_map: Mapping[str, str]) -> None:
        self._sku_map = sku_map
        self._hardware = {sku: find_hardware(sku) for sku in (TORCHREC, *sku_map.values())}
        self._constants: dict[tuple[str, float | None], Any] = {}

    def estimated(self, record: Record) -> RecordEstimate:
        if not isinstance(record, (LookupRecord, CollectiveRecord)):
            kinds = ", ".join((*LOOKUP_KINDS, COLLECTIVE_KIND))
            reason = f"kind `{record.kind}` is none of {kinds}"
            return RecordEstimate(record=record, reason=reason)
        measured = milliseconds(record)
        if isinstance(measured, Unknown):
            return RecordEstimate(record=record, reason=measured.reason)
        match = self._match(record)
        datasheet: float | None = None
        own: float | Unknown = Unknown(match.reason)
        if match.sku is not None:
            if match.sku not in self._hardware:
                self._hardware[match.sku] = find_hardware(match.sku)
            datasheet = _stock_ms(record, self._hardware[match.sku])
            own = self._hardware_ms(record, match.sku)
        return RecordEstimate(
            record=record,
            sku=match.sku,
            measured_ms=measured,
            torchrec_ms=_stock_ms(record, self._hardware[TORCHREC]),
            datasheet_ms=datasheet,
            hardware_ms=None if isinstance(own, Unknown) else own,
            reason=own.reason if isinstance(own, Unknown) else None,
        )

    def _match(self, record: TimedRecord) -> Match:
        given = self._sku_map.get(record.gpu or "")
        if given is not None:
            return Match(given)
        match = match_device(record.gpu)
        if match.links_differ and isinstance(record, CollectiveRecord):
            return Match(None, f"`{record.gpu}` has other links than {match.sku}")
        return match

    def _hardware_ms(self, record: LookupRecord | CollectiveRecord, sku: str) -> float | Unknown:
        """Returns the estimate by the hardware costs."""
        hardware = self._hardware[sku]
        if isinstance(record, LookupRecord):
            looked = lookup_work(record)
            if isinstance(looked, Unknown):
                return looked
            times: Times = lookup_times([looked], [1.0], [""], link_speeds(hardware))
            network = None
        else:
            exchanged = exchange_work(record, hardware)
            if isinstance(exchanged, Unknown):
                return exchanged
            (times,) = exchange_times([exchanged], [1.0], [""], hardware)
            network = exchanged.network
        key = (sku, network)
        if key not in self._constants:
            try:
                self._constants[key] = np.array(hardware_constants(hardware, network))
            except HardwareError as error:
                return Unknown(str(error))
        return float(times.estimated(self._constants[key])[0])


def _stock_ms(record: TimedRecord, hardware: Hardware) -> float | None:
    """Returns the estimate by TorchRec's formulas with the bandwidths of a SKU."""
    if isinstance(record, CollectiveRecord):
        return _stock_exchange_ms(record, hardware)
    assert isinstance(record, LookupRecord)
    return _stock_lookup_ms(record, hardware)


def _stock_exchange_ms(record: CollectiveRecord, hardware: Hardware) -> float | None:
    """TorchRec divides bytes by the bandwidth inside a host, or across hosts."""
    if not record.message_bytes or record.ranks is None:
        return None
    local = record.gpus_per_host or min(record.ranks, hardware.ranks_per_host)
    if record.ranks <= local:
        return record.message_bytes / hardware.intra_host_bw
    try:
        job = for_job(hardware, record.ranks, local)
    except HardwareError:
        return None
    return record.message_bytes / job.inter_host_bw


def _stock_lookup_ms(record: LookupRecord, hardware: Hardware) -> float | None:
    """Returns TorchRec's estimate of one table on one rank, times the tables."""
    size = element_size(record.dtype)
    given = (record.tables, record.rows_per_table, record.dim, record.bags_per_table)
    if size is None or None in given or record.kernel is None:
        return None
    tables, rows, dim, bags = (float(value or 0) for value in given)
    load = record.cache_load_factor
    if load is None and record.cache_rows is not None:
        load = record.cache_rows / (tables * rows)
    optimizer = optimizer_of(record)
    types = {stock.DTYPE_SIZES[name]: name for name in ("fp8", "fp16", "fp32", "fp64")}
    kind = "embedding_bag_collection" if record.pooled else "embedding_collection"
    try:
        spec = ModelSpec(
            name="record",
            torchrec=stock.VERSIONS[0],
            batch_size=max(1, int(bags)),
            modules={"": ModuleSpec(kind=kind)},
            tables=(
                TableSpec(
                    name="table",
                    module="",
                    rows=int(rows),
                    dim=int(dim),
                    dtype=types[size],
                    pooling=(float(record.pooling or 1.0),),
                    sharding_types=("table_wise",),
                    compute_kernels=(record.kernel,),
                    optimizer=None if isinstance(optimizer, Unknown) else optimizer,
                    cache=None if load is None else CacheSpec(load_factor=min(load, 1.0)),
                ),
            ),
            topology=TopologySpec(hardware=hardware, world_size=1),
            reservation=ReservationSpec(policy="percentage", percentage=0.0),
        )
        request = lower(spec).request
        assert request is not None
        space = estimate(request)
    except (ValueError, KeyError, _native.OutOfRange):  # a shape that no request can have
        return None
    if not len(space.run_count):
        return None
    forward = float(space.run_fwd_compute[0] + space.run_prefetch_compute[0])
    backward = float(space.run_bwd_compute[0])
    passes = {"lookup_forward": forward, "lookup_backward": backward}
    return tables * passes.get(record.kind, forward + backward)
