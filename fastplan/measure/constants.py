"""Fits TorchRec's constants to micro-benchmarks, if the data determine them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fastplan.measure.cases import COLLECTIVES, COPY, HOST, HOST_COPY, LOOKUP, WORLD, Case
from fastplan.measure.statistics import Fit, fit
from fastplan.spec.stock import CACHE_LOAD_FACTOR, WEIGHTED_KERNEL_MULTIPLIER

# TorchRec's bandwidth of a UVM kernel is a tenth of the link's.
_UVM_SHARE = 10
_EXCHANGES = tuple(kind for kind in COLLECTIVES if kind != "all_reduce")


class Point(NamedTuple):
    """The result of a micro-benchmark: median seconds on the slowest rank, by work."""

    case: Case
    seconds: dict[str, float]


class Constant(NamedTuple):
    """A measured figure of a SKU: bytes per millisecond, or a factor."""

    name: str
    value: float
    low: float
    high: float
    source: str
    fit: Fit


@dataclass(kw_only=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        constants: The constants that the data determine, by figure.
        left_out: Why other figures are not determined.
        fits: All fits, or why there is none, by subject.
        remarks: What TorchRec's formulas can't express.
    """

    constants: dict[str, Constant] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    fits: dict[str, Fit | str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def calibration(points: Sequence[Point], device: str, ranks: int, hosts: int) -> Calibration:
    """Returns the constants that the points determine, and why others are not determined."""
    return _Fitting(points, device, ranks, hosts).run()


class _Fitting:
    def __init__(self, points: Sequence[Point], device: str, ranks: int, hosts: int) -> None:
        self._points = [point for point in points if not point.case.extra]
        self._device = device
        self._ranks = ranks
        self._hosts = hosts
        self._found = Calibration()

    def run(self) -> Calibration:
        memory = "ddr_mem_bw" if self._device == "cpu" else "hbm_mem_bw"
        self._memory(memory)
        self._multipliers(memory)
        self._link()
        self._exchanges()
        self._inter_host()
        for name, reason in self._not_measured().items():
            if name not in self._found.constants:
                self._found.left_out.setdefault(name, reason)
        self._remark(memory)
        return self._found

    def _fit(self, what: str, work: str, wanted: Callable[[Case], bool]) -> Fit | str:
        chosen = [point for point in self._points if wanted(point.case)]
        found = fit(
            [point.case.counted for point in chosen], [point.seconds[work] for point in chosen]
        )
        self._found.fits[what] = found
        return found

    def _add_bandwidth(self, name: str, found: Fit | str, source: str, scale: float = 1.0) -> None:
        """Adds a bandwidth if it is determined. TorchRec divides it by `scale`."""
        problem = found if isinstance(found, str) else found.problem
        if isinstance(found, str) or problem is not None:
            self._found.left_out[name] = str(problem)
            return
        low, value, high = (
            scale * bandwidth / 1000 for bandwidth in (found.low, found.bandwidth, found.high)
        )
        self._found.constants[name] = Constant(name, value, low, high, source, found)

    def _memory(self, name: str) -> None:
        found = self._fit("fused lookup, forward", "forward", _lookup("fused"))
        self._add_bandwidth(name, found, f"FBGEMM lookups on {self._ranks} ranks at once")
        self._fit("copy in memory", "copy", lambda case: case.kind == COPY)

    def _multipliers(self, memory: str) -> None:
        backward = self._fit("fused lookup, backward", "backward", _lookup("fused"))
        weighted = self._fit("weighted lookup, backward", "backward", _lookup("fused", True))
        names = "bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier"
        if memory not in self._found.constants:
            self._found.left_out |= dict.fromkeys(names, f"{memory} is not determined")
            return
        forward = self._found.constants[memory].value * 1000
        source = "backward and update over forward of FBGEMM lookups, row-wise Adagrad"
        self._factor(names[0], backward, lambda bandwidth: forward / bandwidth, source)
        if names[0] not in self._found.constants:
            self._found.left_out[names[1]] = f"{names[0]} is not determined"
            return
        plain = self._found.constants[names[0]].value
        self._factor(
            names[1],
            weighted,
            lambda bandwidth: (forward / bandwidth - WEIGHTED_KERNEL_MULTIPLIER) / plain,
            "the same for weighted lookups, without TorchRec's addition for the weights",
        )

    def _factor(
        self, name: str, found: Fit | str, of: Callable[[float], float], source: str
    ) -> None:
        """Adds a factor that is computed from a bandwidth, and decreases with it."""
        problem = found if isinstance(found, str) else found.problem
        if isinstance(found, str) or problem is not None:
            self._found.left_out[name] = str(problem)
            return
        low, value, high = of(found.high), of(found.bandwidth), of(found.low)
        if not low > 0:
            self._found.left_out[name] = f"it may be zero: {low:.2g} to {high:.2g}"
            return
        self._found.constants[name] = Constant(name, value, low, high, source, found)

    def _link(self) -> None:
        """Fits the link. TorchRec has one figure for it, which its UVM kernels use."""
        if self._device == "cpu":
            return
        found = self._fit("fused_uvm lookup, forward", "forward", _lookup("fused_uvm"))
        self._fit("fused_uvm_caching lookup, forward", "forward", _lookup("fused_uvm_caching"))
        self._fit("copy from host", "copy", lambda case: case.kind == HOST_COPY)
        source = f"FBGEMM lookups in unified memory, times TorchRec's {_UVM_SHARE}"
        self._add_bandwidth("hbm_to_ddr_mem_bw", found, source, scale=_UVM_SHARE)

    def _exchanges(self) -> None:
        if self._ranks == self._hosts:
            self._found.left_out["intra_host_bw"] = (
                "a host has only one rank, so nothing is exchanged"
            )
            return
        self._by_kind(HOST)
        found = self._exchange("exchanges in a host", HOST)
        self._add_bandwidth(
            "intra_host_bw", found, f"{_join_words(_EXCHANGES)} of the ranks of a host"
        )

    def _inter_host(self) -> None:
        """Fits the network. On one host, TorchRec uses this figure only for the all-reduce."""
        if self._hosts > 1:
            self._by_kind(WORLD)
            found = self._exchange("exchanges across hosts", WORLD)
            source = f"{_join_words(_EXCHANGES)} of {self._ranks} ranks on {self._hosts} hosts"
            self._add_bandwidth("inter_host_bw", found, source)
            return
        found = self._found.fits["all_reduce, host"]
        source = (
            f"the all-reduce of {self._ranks} ranks of one host, divided by {self._ranks}: the "
            "cost of data-parallel tables in TorchRec; no network was measured"
        )
        self._add_bandwidth("inter_host_bw", found, source, scale=1 / self._ranks)

    def _exchange(self, what: str, scope: str) -> Fit | str:
        def wanted(case: Case) -> bool:
            return case.kind in _EXCHANGES and case.scope == scope

        chosen = [point for point in self._points if wanted(point.case)]
        found = fit(
            [point.case.counted for point in chosen],
            [point.seconds[point.case.kind] for point in chosen],
        )
        self._found.fits[what] = found
        return found

    def _by_kind(self, scope: str) -> None:
        for kind in COLLECTIVES:
            self._fit(
                f"{kind}, {scope}",
                kind,
                lambda case, kind=kind: case.kind == kind and case.scope == scope,  # type: ignore[misc]
            )

    def _not_measured(self) -> dict[str, str]:
        reasons = {"ssd_mem_bw": "no SSD kernel is benchmarked"}
        if self._device == "cpu":
            reasons["hbm_mem_bw"] = "CPUs have no HBM"
            reasons["hbm_to_ddr_mem_bw"] = "CPUs have no link to a device"
        else:
            reasons["ddr_mem_bw"] = "TorchRec reads it for tables on CPUs only"
        return reasons

    def _remark(self, memory: str) -> None:
        """Adds remarks about costs that one constant can't express."""
        found = self._found.fits
        kinds = {kind: found.get(f"{kind}, {HOST}") for kind in _EXCHANGES}
        speeds = {kind: one.bandwidth for kind, one in kinds.items() if isinstance(one, Fit)}
        if speeds and max(speeds.values()) > 1.5 * min(speeds.values()):
            each = ", ".join(f"{kind} {speed / 1e9:.3g}" for kind, speed in speeds.items())
            self._found.remarks.append(
                f"collectives differ, but TorchRec has one constant for them: {each} GB/s"
            )
        for what in ("fused lookup, forward", "exchanges in a host", "exchanges across hosts"):
            one = found.get(what)
            if isinstance(one, Fit) and one.error > max(0.2, 1.25 * one.error_with_latency):
                self._found.remarks.append(
                    f"{what}: TorchRec has no latency; the error of times would be "
                    f"{100 * one.error_with_latency:.0f} % with {1e6 * one.latency:.0f} us, and is "
                    f"{100 * one.error:.0f} % without"
                )
        self._remark_caching(memory)

    def _remark_caching(self, memory: str) -> None:
        cached = self._found.fits.get("fused_uvm_caching lookup, forward")
        constants = self._found.constants
        if isinstance(cached, Fit) and {memory, "hbm_to_ddr_mem_bw"} <= constants.keys():
            near, far = constants[memory].value, constants["hbm_to_ddr_mem_bw"].value
            assumed = uvm_bandwidths(near, far)["fused_uvm_caching"] * 1000
            self._found.remarks.append(
                f"fused_uvm_caching reads {cached.bandwidth / 1e9:.3g} GB/s; TorchRec "
                f"computes {assumed / 1e9:.3g} from the other constants"
            )


def uvm_bandwidths(memory: float, link: float) -> dict[str, float]:
    """Returns TorchRec's bandwidths of lookups in unified memory, by kernel."""
    share = CACHE_LOAD_FACTOR
    return {
        "fused_uvm": link / _UVM_SHARE,
        "fused_uvm_caching": (share * memory + (1 - share) * link) / _UVM_SHARE,
    }


def _lookup(kernel: str, weighted: bool = False) -> Callable[[Case], bool]:
    return lambda case: case.kind == LOOKUP and case.kernel == kernel and case.weighted == weighted


def _join_words(kinds: Sequence[str]) -> str:
    return ", ".join(kind.replace("_", "-") for kind in kinds)


def slowest_median(ranks: Sequence[dict[str, list[float]]]) -> dict[str, float]:
    """Returns the median seconds of the slowest rank, by work."""
    return {
        work: float(np.median(np.max([rank[work] for rank in ranks], axis=0))) for work in ranks[0]
    }
