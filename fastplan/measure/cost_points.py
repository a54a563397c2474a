"""Micro-benchmarks by the group of hardware cost constants that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastplan.costs.fit import Times
from fastplan.measure.cases import COLLECTIVES, HOST, LOOKUP, WORLD, Case
from fastplan.measure.constants import Point, uvm_bandwidths
from fastplan.measure.record_work import (
    ExchangeWork,
    LookupWork,
    Unknown,
    exchange_times,
    exchange_work,
    lookup_times,
    lookup_work,
)
from fastplan.measure.records import CollectiveRecord, LookupRecord
from fastplan.model.hardware_costs import FAMILY_OF_KERNEL
from fastplan.spec.hardware import Hardware, link_speeds
from fastplan.spec.stock import CACHE_LOAD_FACTOR


@dataclass(slots=True)
class GroupTimes:
    """The benchmarks of a group of constants, one entry each in every list."""

    points: list[Point] = field(default_factory=list)
    works: list[LookupWork | ExchangeWork] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    torchrec_ms: list[float | None] = field(default_factory=list)  # None: it has no estimate

    def times(self, hardware: Hardware) -> list[Times]:
        """Returns the times as the fit takes them."""
        names = [_shape(point.case) for point in self.points]
        lookups = [work for work in self.works if isinstance(work, LookupWork)]
        if lookups:
            return [lookup_times(lookups, self.ms, names, link_speeds(hardware))]
        exchanges = [work for work in self.works if isinstance(work, ExchangeWork)]
        return list(exchange_times(exchanges, self.ms, names, hardware))

    @property
    def rank_counts(self) -> set[int]:
        """The numbers of ranks that exchanged; empty for lookups."""
        return {work.ranks for work in self.works if isinstance(work, ExchangeWork)}


def _shape(case: Case) -> str:
    if case.kind == LOOKUP:
        return f"{case.tables} {case.dim} {case.pooling} {case.samples} {case.optimizer}"
    return f"{case.scope} {case.bytes}"


def times_by_group(
    points: Sequence[Point], hardware: Hardware, ranks: int, *, weighted: bool
) -> dict[str, GroupTimes]:
    """Returns the benchmarks by the group of constants that they depend on.

    Args:
        points: The benchmarks' results.
        hardware: The measured hardware with its bandwidths.
        ranks: The number of ranks that ran the benchmarks.
        weighted: Whether to return the lookups of weighted ids, or all other benchmarks.
    """
    hosts = max(1, ranks // hardware.ranks_per_host)
    found: dict[str, GroupTimes] = {}
    for point in points:
        case = point.case
        for name, seconds in point.seconds.items():
            work = _work(case, name, hardware, ranks, hosts)
            if work is None or case.weighted != weighted or not seconds > 0:
                continue
            own = found.setdefault(_group(case, name, work), GroupTimes())
            own.points.append(point)
            own.works.append(work)
            own.ms.append(1000 * seconds)
            own.torchrec_ms.append(_torchrec_ms(case, name, hardware, hosts))
    return found


def _group(case: Case, name: str, work: LookupWork | ExchangeWork) -> str:
    if isinstance(work, LookupWork):
        return f"{FAMILY_OF_KERNEL[case.kernel]}_{name}"
    return f"{'domain' if work.ranks <= work.domain_ranks else 'network'}_{case.kind}"


def _work(
    case: Case, name: str, hardware: Hardware, ranks: int, hosts: int
) -> LookupWork | ExchangeWork | None:
    """Returns what a benchmark does; None if it says nothing about the hardware costs."""
    done: LookupWork | ExchangeWork | Unknown
    if case.kind == LOOKUP:
        done = lookup_work(
            LookupRecord(
                id=case.kind,
                kind=f"lookup_{name}",
                value=1.0,
                kernel=case.kernel,
                tables=case.tables,
                rows_per_table=case.rows,
                dim=case.dim,
                pooling=case.pooling,
                pooled=True,
                bags_per_table=case.samples,
                id_distribution="uniform",
                optimizer=case.optimizer,
                cache_load_factor=CACHE_LOAD_FACTOR,
            )
        )
    elif case.kind in COLLECTIVES:
        local = hardware.ranks_per_host
        done = exchange_work(
            CollectiveRecord(
                id=case.kind,
                kind="collective",
                value=1.0,
                collective=case.kind,
                ranks=ranks if case.scope == WORLD else local,
                hosts=hosts if case.scope == WORLD else 1,
                gpus_per_host=local,
                message_bytes=case.bytes,
            ),
            hardware,
        )
    else:
        return None
    is_nothing = isinstance(done, ExchangeWork) and done.ranks < 2
    return None if isinstance(done, Unknown) or is_nothing else done


def _torchrec_ms(case: Case, name: str, hardware: Hardware, hosts: int) -> float | None:
    """Returns TorchRec's estimate; None if it has none for this work."""
    if case.kind == LOOKUP:
        near, far = link_speeds(hardware).memory, hardware.hbm_to_ddr_mem_bw
        speed = {"fused": near, **uvm_bandwidths(near, far)}[case.kernel]
        factor = hardware.bwd_compute_multiplier if name == "backward" else 1.0
        return factor * case.counted / speed
    if case.kind != "all_reduce":
        wire = hardware.intra_host_bw if case.scope == HOST else hardware.inter_host_bw
        return case.counted / wire
    if case.scope == HOST and hosts > 1:
        return None  # its all-reduce is always over all ranks
    passes = (2 * hosts - 1) / hosts
    return case.counted * passes / (hardware.inter_host_bw * hardware.ranks_per_host)
