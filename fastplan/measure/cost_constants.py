"""Fits the constants of the hardware costs to micro-benchmarks.

Efficiencies are shares of the bandwidths that the same SKU file states, so the file is consistent
whatever those are. Constants that the benchmarks can't identify are carried over from a SKU that
has them; without one, they are derived from measured constants, and say how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fastplan.costs.fit import Fit, Floats, Times, estimate_times, first_prior, fit
from fastplan.measure.cases import LOOKUP
from fastplan.measure.constants import Point
from fastplan.measure.cost_points import GroupTimes, times_by_group
from fastplan.measure.record_estimates import match_device
from fastplan.model.hardware_costs import (
    CONSTANTS_BY_NAME,
    COST_GROUPS,
    Constant,
    CostFigure,
    LinkSpeeds,
)
from fastplan.spec.hardware import Hardware, find_hardware, link_speeds

MEASURED = "measured"  # the first word of a fitted constant's source
# The most important first: if times can't tell two constants apart, the later one is not fitted.
_ORDER = ("efficiency", "ns/id", "ms", "per group")
_BY_RANKS = ("latency_per_rank", "small_group", "latency_per_doubling")
_LARGEST = 0.25  # the share of times that bound an efficiency
_WIDEST = 9.0  # the upper end of an identified constant's interval over the lower one
_LEAST_TIME = 1e-9  # ms, where a formula needs a latency above 0
_ANY_RANKS = "assumed: the number of ranks does not matter"
_CPU_KERNELS = "no such kernel on CPUs"
_ON_CPU = {  # what tables cost there, whatever the kernel
    "uvm_forward.latency": "hbm_forward.latency",
    "uvm_forward.unique_efficiency": "hbm_forward.efficiency",
    "uvm_forward.repeat_efficiency": "hbm_forward.efficiency",
    "uvm_backward.latency": "hbm_backward.latency",
    "uvm_backward.gradient_efficiency": "hbm_backward.efficiency",
    "uvm_backward.row_efficiency": "hbm_backward.efficiency",
    # These are in addition to the forward pass in HBM.
    "caching_forward.latency": None,
    "caching_forward.unique_id": None,
    "caching_forward.miss_efficiency": "hbm_forward.efficiency",
    "caching_backward.latency": "hbm_backward.latency",
    "caching_backward.gradient_efficiency": "hbm_backward.efficiency",
    "caching_backward.unique_id": None,
    "caching_backward.state_efficiency": "hbm_backward.efficiency",
}


class Ratio(NamedTuple):
    """The ratio of estimate and measurement, or its inverse if that is larger."""

    median: float
    p90: float

    @staticmethod
    def of(estimated: Floats, measured: Floats) -> Ratio:
        """Returns the median and 90th percentile over all times."""
        found = np.exp(np.abs(np.log(estimated / measured)))
        return Ratio(float(np.median(found)), float(np.percentile(found, 90)))


class FormErrors(NamedTuple):
    """How well both cost models estimate the times that TorchRec's constants are fitted to."""

    n: int
    torchrec: Ratio
    hardware: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCalibration:
    """The constants of the hardware costs of a calibrated SKU.

    Attributes:
        figures: Every constant, by full name.
        measured: The names of the constants that the benchmarks identify.
        errors: How well both cost models estimate the benchmarks, by group of constants.
        remarks: What the formulas of the hardware costs can't express.
    """

    figures: Mapping[str, CostFigure]
    measured: frozenset[str]
    errors: Mapping[str, FormErrors]
    remarks: tuple[str, ...] = ()

    def not_measured(self) -> dict[str, str]:
        """Returns the other constants as text, by where their values come from."""
        found: dict[str, dict[tuple[str, ...], list[str]]] = {}
        for group, names in COST_GROUPS.items():
            reasons: dict[str, tuple[str, ...]] = {}
            for name in names:
                figure = self.figures[f"{group}.{name}"]
                if f"{group}.{name}" not in self.measured:
                    reason = f"{figure.source} ({figure.note})" if figure.note else figure.source
                    reasons[reason] = (*reasons.get(reason, ()), name)
            for reason, own in reasons.items():
                what = () if own == names else own
                found.setdefault(reason, {}).setdefault(what, []).append(group)
        return {
            reason: "; ".join(_named(names, groups) for names, groups in whats.items())
            for reason, whats in found.items()
        }


def _named(names: tuple[str, ...], groups: Sequence[str]) -> str:
    """Returns constants of some groups as text; no names: all of the groups' constants."""
    return f"{', '.join(names)} of {', '.join(groups)}" if names else ", ".join(groups)


def cost_lender(base: Hardware, devices: Sequence[str]) -> Hardware | None:
    """Returns hardware whose constants stand in for those that can't be measured.

    Args:
        base: The SKU that the calibrated one is `like`.
        devices: Names of the measured devices.

    Returns:
        The base if it has constants, else the shipped SKU of the devices, else None.
    """
    if base.costs:
        return base
    names = {match_device(device).sku for device in devices}
    name = names.pop() if len(names) == 1 else None
    return None if name is None else find_hardware(name)


def fit_costs(
    points: Sequence[Point], hardware: Hardware, ranks: int, lender: Hardware | None
) -> CostCalibration:
    """Fits the constants of the hardware costs to micro-benchmarks.

    Args:
        points: The benchmarks' results.
        hardware: The measured hardware with its bandwidths; `costs` are ignored.
        ranks: The number of ranks that ran the benchmarks.
        lender: Hardware with constants for what the benchmarks can't identify.

    Returns:
        All constants; each says where it comes from.
    """
    return _CostFitting(points, hardware, ranks, lender).run()


class _CostFitting:
    def __init__(
        self, points: Sequence[Point], hardware: Hardware, ranks: int, lender: Hardware | None
    ) -> None:
        self._hardware = hardware
        self._links = link_speeds(hardware)
        self._ranks = ranks
        self._hosts = max(1, ranks // hardware.ranks_per_host)
        self._lender = lender
        self._timed = times_by_group(points, hardware, ranks, weighted=False)
        self._weighted = times_by_group(points, hardware, ranks, weighted=True)
        self._figures: dict[str, CostFigure] = {}
        self._measured: set[str] = set()

    def run(self) -> CostCalibration:
        values = first_prior()
        # Later groups depend on earlier ones: caching on HBM, the network on the domain.
        for group in COST_GROUPS:
            if group in self._timed:
                values |= self._fit(group, values)
        for group in COST_GROUPS:
            if group not in self._timed:
                self._fill(group)
        values = {name: figure.value for name, figure in self._figures.items()}
        return CostCalibration(
            figures={name: self._figures[name] for name in CONSTANTS_BY_NAME},
            measured=frozenset(self._measured),
            errors=self._errors(values),
            remarks=tuple(self._remarks(values)),
        )

    def _fit(self, group: str, values: Mapping[str, float]) -> dict[str, float]:
        """Fits the constants of a group, and returns their values."""
        timed = self._timed[group]
        times = timed.times(self._hardware)
        names = sorted(
            (f"{group}.{name}" for name in COST_GROUPS[group]),
            key=lambda name: _ORDER.index(CONSTANTS_BY_NAME[name].unit),
        )
        by_ranks = [name for name in names if CONSTANTS_BY_NAME[name].name in _BY_RANKS]
        counts = timed.rank_counts
        one_count = len(counts) == 1
        wanted = [name for name in names if not (one_count and name in by_ranks)]
        prior = {**values, **dict.fromkeys(by_ranks, 0.0)}
        start = self._start(wanted, times, prior)
        prior |= {name: figure.value for name, figure in start.items()}
        found = fit(times, wanted, prior)
        for name in names:
            if name in found.constants:
                self._figures[name] = self._fitted(name, found, timed)
            elif name in wanted:
                note = _joined(found.not_identified[name], start[name].note)
                self._figures[name] = replace(start[name], note=note)
            else:
                self._figures[name] = CostFigure(
                    value=0.0,
                    source=_ANY_RANKS,
                    note=f"measured with {min(counts)} ranks only",
                )
        return {name: self._figures[name].value for name in names}

    def _start(
        self, names: Sequence[str], times: Sequence[Times], prior: Mapping[str, float]
    ) -> dict[str, CostFigure]:
        """Returns figures near which constants are fitted, and which they keep otherwise."""
        lent = {name: self._lent(name) for name in names}
        found = {name: figure for name, figure in lent.items() if figure is not None}
        rates = [name for name in names if CONSTANTS_BY_NAME[name].unit == "efficiency"]
        # The time at the full speed of the link, and nothing but the link.
        alone = {name: 1.0 if name in rates else _LEAST_TIME for name in names}
        full = estimate_times(times, {**prior, **alone})
        ms = np.concatenate([each.ms for each in times])
        largest = np.argsort(full)[-max(1, round(_LARGEST * len(full))) :]
        share = float(np.median(full[largest] / ms[largest]))
        shortest = float(ms.min())
        for name in names:
            unit = CONSTANTS_BY_NAME[name].unit
            if name in found:
                continue
            if unit == "efficiency":
                source = "assumed: the largest sizes have no latency"
                found[name] = CostFigure(value=share, source=source)
            elif unit == "ms" and name.endswith(".latency"):
                source = "assumed: half of the shortest time"
                found[name] = CostFigure(value=shortest / 2, source=source)
            else:
                value = first_prior()[name]
                source = "assumed: an order of magnitude" if value else _ANY_RANKS
                found[name] = CostFigure(value=value, source=source)
        return found

    def _fitted(self, name: str, found: Fit, timed: GroupTimes) -> CostFigure:
        value, low, high, n = found.constants[name]
        is_lookup = timed.points[0].case.kind == LOOKUP
        what = "FBGEMM lookups" if is_lookup else timed.points[0].case.kind
        ranks = ", ".join(map(str, sorted(timed.rank_counts))) or self._ranks
        times = f"{what} on {ranks} ranks"
        figure = CostFigure(value=value, low=low, high=high, n=n, source=f"{MEASURED}: {times}")
        if high <= _WIDEST * low:  # or all are 0
            self._measured.add(name)
            return figure
        note = f"not identified: the interval spans a factor of {high / low:.2g}"
        return replace(figure, source=f"assumed: the best fit of {times}", note=note)

    def _lent(self, name: str) -> CostFigure | None:
        """Returns the lender's figure, with the same milliseconds on this hardware's links."""
        if self._lender is None or name not in self._lender.costs:
            return None
        figure = self._lender.costs[name]
        factor = _rescale(CONSTANTS_BY_NAME[name], link_speeds(self._lender), self._links)
        return CostFigure(
            value=figure.value * factor,
            low=None if figure.low is None else figure.low * factor,
            high=None if figure.high is None else figure.high * factor,
            n=figure.n,
            source=f"carried over from {figure.sku or self._lender.name}: {figure.source}",
            note=figure.note,
        )

    def _fill(self, group: str) -> None:
        """Gives the constants of a group without benchmarks a value."""
        reason = self._why_not_measured(group)
        for name in (f"{group}.{short}" for short in COST_GROUPS[group]):
            figure = self._lent(name)
            if figure is None:
                figure = self._equal(name)
            self._figures[name] = replace(figure, note=_joined(reason, figure.note))

    def _why_not_measured(self, group: str) -> str:
        scope = group.partition("_")[0]
        if scope == "network":
            return "not measured: one host" if self._hosts == 1 else "not measured"
        if scope == "domain":
            return "not measured: one rank per host"
        return _CPU_KERNELS if self._hardware.device == "cpu" else "not measured"

    def _equal(self, name: str) -> CostFigure:
        """Returns the figure of a measured constant that does the same work, in milliseconds."""
        scope, _, rest = name.partition("_")
        other: str | None
        if scope in ("domain", "network"):
            other = f"{'domain' if scope == 'network' else 'network'}_{rest}"
        else:
            other = _ON_CPU[name]
        if other is None:
            return CostFigure(value=0.0, source="assumed: there is no cache")
        constant = CONSTANTS_BY_NAME[name]
        source = CONSTANTS_BY_NAME[other]
        factor = 1.0  # other bandwidths, but the same milliseconds
        if constant.link is not None and source.link is not None:
            own, theirs = _speed(constant, self._links), _speed(source, self._links)
            factor = own / theirs if constant.unit == "per group" else theirs / own
        value = self._figures[other].value * factor
        return CostFigure(value=value, source=f"assumed: as fast as {source.group}")

    def _errors(self, values: Mapping[str, float]) -> dict[str, FormErrors]:
        found = {}
        for group, timed in self._timed.items():
            theirs = timed.torchrec_ms
            estimated = estimate_times(timed.times(self._hardware), values)
            own = [
                i
                for i, point in enumerate(timed.points)
                if not point.case.extra and theirs[i] is not None
            ]
            if own:
                ms = np.array(timed.ms)[own]
                torchrec = np.array([theirs[i] for i in own], np.float64)
                found[group] = FormErrors(
                    len(own), Ratio.of(torchrec, ms), Ratio.of(estimated[own], ms)
                )
        return {group: found[group] for group in COST_GROUPS if group in found}

    def _remarks(self, values: Mapping[str, float]) -> list[str]:
        factors = []
        for group in COST_GROUPS:
            if group in self._weighted:
                timed = self._weighted[group]
                estimated = estimate_times(timed.times(self._hardware), values)
                factor = float(np.median(np.array(timed.ms) / estimated))
                factors.append(f"{group} {factor:.2g} x")
        if not factors:
            return []
        return [
            "the hardware costs have no term for weights of ids; weighted lookups take, as a "
            f"multiple of the estimate: {', '.join(factors)}"
        ]


def _rescale(constant: Constant, theirs: LinkSpeeds, own: LinkSpeeds) -> float:
    """Returns the factor that keeps a constant's milliseconds per byte on other links."""
    if constant.link is None:
        return 1.0
    factor = _speed(constant, theirs) / _speed(constant, own)
    return 1 / factor if constant.unit == "per group" else factor


def _speed(constant: Constant, links: LinkSpeeds) -> float:
    assert constant.link is not None
    speed: float = getattr(links, constant.link)
    return speed


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
