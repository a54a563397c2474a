"""Fits the constants of all SKUs: own measurements where there are some, else carried over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bench.costs_table import Measured, hardware
from fastplan.costs.fit import Fit, Times, estimate_times, first_prior, fit
from fastplan.measure.record_work import (
    ExchangeWork,
    LookupWork,
    exchange_times,
    lookup_times,
)
from fastplan.model.hardware_costs import COLLECTIVES, CONSTANTS, CONSTANTS_BY_NAME
from fastplan.spec.hardware import link_speeds

ROOT = "h100"
# The SKU whose constants are the prior of a fit, and the value of constants without measurements.
LENDERS = {
    "h100": None,
    "h200": "h100",
    "gh200": "h100",
    "a100-40": "h100",
    "b200": "h100",
    "gb200-nvl72": "b200",
    "gb300-nvl72": "gb200-nvl72",
    "mi355x": "h100",
    "mi300x": "mi355x",
}
# SKUs with the same links and kernels as one that is fitted; they carry over its constants.
SAME = {"a100-80": "a100-40", "b300": "b200", "v100-32": "a100-40"}
# Infinity Fabric is a mesh, not a switch: NVLink's constants say nothing about it.
_OTHER_FABRIC = "mi355x"
# Who predicts the root if it is left out.
_OTHER_ROOT = "b200"

# The constants of a part, the most important first.
_EXCHANGE = ("efficiency", "latency", "latency_per_rank", "small_group", "latency_per_doubling")
_LATENCIES = ("latency", "latency_per_rank", "latency_per_doubling")
FAMILIES = ("hbm", "uvm", "caching")
PARTS: dict[str, tuple[str, ...]] = {
    family: tuple(
        sorted(
            (c.full_name for c in CONSTANTS if c.group.startswith(f"{family}_")),
            key=lambda name: CONSTANTS_BY_NAME[name].unit != "efficiency",
        )
    )
    for family in FAMILIES
} | {
    f"{scope}_{collective}": tuple(f"{scope}_{collective}.{name}" for name in _EXCHANGE)
    for scope in ("domain", "network")
    for collective in COLLECTIVES
}
_LEAST_VOLUMES = 2  # of ids: with one, latency and efficiency can't be told apart
SMALL = 1 << 20  # bytes of a message
_LEAST_OWN = 10  # times across hosts, for the root's own fit; else all SKUs' are fitted


def times_of(measured: Iterable[Measured]) -> list[Times]:
    """Returns the times as the fit takes them. Their order is that of `in_order`."""
    found: list[Times] = []
    for sku, own in _by_sku(measured).items():
        looked = [m for m in own if isinstance(m.work, LookupWork)]
        if looked:
            works = [m.work for m in looked if isinstance(m.work, LookupWork)]
            names = [m.configuration for m in looked]
            links = link_speeds(hardware(sku))
            found.append(lookup_times(works, [m.ms for m in looked], names, links))
        exchanged = [m for m in own if isinstance(m.work, ExchangeWork)]
        if exchanged:
            kinds = [m.work for m in exchanged if isinstance(m.work, ExchangeWork)]
            names = [m.configuration for m in exchanged]
            ms = [m.ms for m in exchanged]
            found += exchange_times(kinds, ms, names, hardware(sku))
    return found


def in_order(measured: Iterable[Measured]) -> list[Measured]:
    """Returns measured times in the order of `times_of`."""
    found: list[Measured] = []
    for own in _by_sku(measured).values():
        found += [m for m in own if isinstance(m.work, LookupWork)]
        exchanged = [m for m in own if isinstance(m.work, ExchangeWork)]
        networks = dict.fromkeys(m.work.network for m in exchanged)  # type: ignore[union-attr]
        for network in networks:
            found += [m for m in exchanged if m.work.network == network]  # type: ignore[union-attr]
    return found


def _by_sku(measured: Iterable[Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for each in measured:
        found.setdefault(each.sku, []).append(each)
    return found


class CostFits:
    """The fits of all SKUs and parts, computed when asked for.

    Args:
        measured: The times to fit.
        known: Fits by their times, shared between instances with nearly the same times.
        intervals: Compute intervals.
    """

    def __init__(
        self,
        measured: Iterable[Measured],
        known: dict[tuple[object, ...], Fit] | None = None,
        *,
        intervals: bool = False,
    ) -> None:
        self._measured: dict[tuple[str, str], list[Measured]] = {}
        for each in measured:
            if each.is_reliable:
                owner = SAME.get(each.sku, each.sku)
                self._measured.setdefault((owner, each.part), []).append(each)
        self._known = {} if known is None else known
        self._intervals = intervals

    def values(self, sku: str, part: str) -> Mapping[str, float]:
        """Returns constants that estimate a part; those of other parts have no meaning."""
        return self.fitted(SAME.get(sku, sku), part).values

    def estimates(self, measured: Sequence[Measured], sku: str | None = None) -> list[float]:
        """Returns the estimates of times, in their order.

        Args:
            measured: The times.
            sku: Whose constants to use; by default each time's own SKU.
        """
        found: dict[int, float] = {}
        by_part: dict[tuple[str, str], list[Measured]] = {}
        for each in measured:
            by_part.setdefault((sku or each.sku, each.part), []).append(each)
        for (owner, part), own in by_part.items():
            ordered = in_order(own)
            ms = estimate_times(times_of(own), self.values(owner, part))
            found |= {id(m): float(t) for m, t in zip(ordered, ms, strict=True)}
        return [found[id(each)] for each in measured]

    def fitted(self, sku: str, part: str) -> Fit:
        """Returns the fit of a part of a SKU's constants."""
        return self._fit(part, self.times(sku, part), self._prior(sku, part), self._intervals)

    def _fit(self, part: str, own: list[Measured], prior: dict[str, float], intervals: bool) -> Fit:
        key = (part, tuple(id(m) for m in own), tuple(prior.values()), intervals)
        if key not in self._known:
            # Large messages can't tell a latency from a slow start.
            is_small = any(isinstance(m.work, ExchangeWork) and m.work.bytes < SMALL for m in own)
            latencies = {f"{part}.{name}" for name in _LATENCIES}
            unknown = set() if is_small or part in FAMILIES or not own else latencies
            names = [name for name in PARTS[part] if name not in unknown]
            found = fit(times_of(own), names, prior, intervals=intervals)
            reasons = dict.fromkeys(sorted(unknown), "no messages below 1 MB")
            self._known[key] = replace(found, not_identified={**found.not_identified, **reasons})
        return self._known[key]

    def times(self, sku: str, part: str) -> list[Measured]:
        """Returns the times that a part of a SKU's constants is fitted to."""
        own = self._measured.get((sku, part), [])
        if part in FAMILIES:
            volumes = {m.work.ids for m in own if isinstance(m.work, LookupWork)}
            return own if len(volumes) >= _LEAST_VOLUMES else []
        if self.is_pooled(sku, part):
            return self._pooled(part)
        return own

    def is_pooled(self, sku: str, part: str) -> bool:
        """Whether the times of all SKUs are fitted: the root's, for want of its own."""
        few = len(self._measured.get((sku, part), [])) < _LEAST_OWN
        return sku == ROOT and part.startswith("network_") and few

    def _pooled(self, part: str) -> list[Measured]:
        return [m for (_, own), ms in self._measured.items() if own == part for m in ms]

    def lender(self, sku: str, part: str) -> str | None:
        """Returns the SKU whose constants are the prior; None: orders of magnitude."""
        if sku == _OTHER_FABRIC and part.startswith("domain_"):
            return None
        lender = LENDERS[sku]
        if lender == ROOT and not any(owner == ROOT for owner, _ in self._measured):
            return None if sku == _OTHER_ROOT else _OTHER_ROOT
        return lender

    def _prior(self, sku: str, part: str) -> dict[str, float]:
        values = first_prior()
        if part == "caching":
            values |= self._own(sku, "hbm")
        scope, _, collective = part.partition("_")
        if scope == "network":
            values |= self._own(sku, f"domain_{collective}")
        lender = self.lender(sku, part)
        if lender is not None:
            values |= self._own(lender, part)
        elif scope == "network":
            values |= self._network_prior(part)
        return values

    def _own(self, sku: str, part: str) -> dict[str, float]:
        values = self.fitted(sku, part).values
        return {name: values[name] for name in PARTS[part]}

    def _network_prior(self, part: str) -> dict[str, float]:
        """Returns what is assumed across hosts: all-reduces' latencies, all-to-alls' efficiency."""
        prior = first_prior() | self._own(ROOT, "domain_all_reduce")
        pooled = self._pooled("network_all_reduce")
        reduced = self._fit("network_all_reduce", pooled, prior, intervals=False)
        found = {
            f"{part}.{name}": reduced.values[f"network_all_reduce.{name}"] for name in _LATENCIES
        }
        if part in ("network_reduce_scatter", "network_all_gather"):
            exchanged = self.fitted(ROOT, "network_all_to_all").values
            found[f"{part}.efficiency"] = exchanged["network_all_to_all.efficiency"]
        return found


def cost_sections(fits: CostFits) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    """Returns the `costs` sections of the SKU file, by SKU, group and constant.

    A SKU has what its measurements identify. What they don't is carried over from its lender, or
    assumed if it has none.
    """
    return {sku: _section(fits, sku) for sku in LENDERS}


def _section(fits: CostFits, sku: str) -> dict[str, dict[str, dict[str, object]]]:
    groups: dict[str, dict[str, dict[str, object]]] = {}
    for part in PARTS:
        found = fits.fitted(sku, part)
        own = fits.times(sku, part)
        for constant in CONSTANTS:
            name = constant.full_name
            if name not in PARTS[part]:
                continue
            entry: dict[str, object] = {}
            if name in found.constants:
                value, low, high, n = found.constants[name]
                entry = {"value": _digits(value, 4), "low": _digits(low, 3)}
                entry |= {"high": _digits(high, 3), "n": n, "source": _source(own)}
            elif fits.lender(sku, part) is None:
                reason = found.not_identified[name]
                entry = {"value": _digits(found.values[name], 4), "n": 0}
                entry |= {"source": f"assumed: {reason}"}
            if entry:
                group = groups.setdefault(constant.group, {})
                note = _note(sku, part, fits.is_pooled(sku, part), own)
                if note and not group:
                    entry["note"] = note
                group[constant.name] = entry
    return groups


def _digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _source(own: Sequence[Measured]) -> str:
    names = sorted({m.repository for m in own})
    shown = ", ".join(names[:_SHOWN])
    return f"fit to {shown}" + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")


def _note(sku: str, part: str, is_pooled: bool, own: Sequence[Measured]) -> str:
    """Returns what is thin about the measurements of a part."""
    if part in FAMILIES:
        return _THIN_LOOKUPS
    if is_pooled and own:
        skus = ", ".join(sorted({m.sku for m in own}))
        return f"thin: {len(own)} times of {skus}, all of large messages; latencies of all-reduces"
    groups = {m.work.ranks for m in own if isinstance(m.work, ExchangeWork)}
    if len(groups) == 1:
        return f"one group size: {groups.pop()} ranks"
    return ""


_SHOWN = 3  # repositories
_THIN_LOOKUPS = (
    "thin: fp32, dim 128, one id per bag, power-law ids, sgd and adam; row-wise Adagrad, pooling "
    "and other dims are not measured"
)
