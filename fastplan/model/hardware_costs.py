"""The constants of the hardware costs: their names, units and bandwidths.

A SKU file states efficiencies and latencies. The native core computes with milliseconds per byte.
docs/hardware-costs.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from fastplan.model.request import Request

COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
KERNEL_FAMILIES = ("hbm", "uvm", "caching")
FAMILY_OF_KERNEL = {
    "dense": "hbm",
    "fused": "hbm",
    "quant": "hbm",
    "fused_triton": "hbm",
    "fused_uvm": "uvm",
    "quant_uvm": "uvm",
    "fused_uvm_caching": "caching",
    "quant_uvm_caching": "caching",
}


def kernel_without_figures(request: Request) -> str:
    """Returns the table and the kernel that hardware costs have no figures for, or nothing."""
    for table in request.tables:
        for item in request.menus[table.menu]:
            if item.kernel not in FAMILY_OF_KERNEL:
                return f"table {table.name}: hardware costs have no figures for {item.kernel}"
    return ""


# What a constant is: a time in ms, a time in ns per id, a share of a link's bandwidth, or the extra
# wire time of small groups (divided by the ranks of the group).
Unit = Literal["ms", "ns/id", "efficiency", "per group"]
Link = Literal["memory", "host", "domain", "network"]


class Constant(NamedTuple):
    """A constant of the hardware costs."""

    group: str  # hbm_forward, domain_all_to_all, ...
    name: str  # latency, efficiency, ...
    unit: Unit
    link: Link | None = None  # the bandwidth that an efficiency is a share of

    @property
    def full_name(self) -> str:
        return f"{self.group}.{self.name}"


def _collective(scope: Link, collective: str) -> tuple[Constant, ...]:
    group = f"{scope}_{collective}"
    return (
        Constant(group, "latency", "ms"),
        Constant(group, "latency_per_rank", "ms"),
        Constant(group, "latency_per_doubling", "ms"),
        Constant(group, "efficiency", "efficiency", scope),
        Constant(group, "small_group", "per group", scope),
    )


# In the order of the core's HardwareConstants.
CONSTANTS: tuple[Constant, ...] = (
    Constant("hbm_forward", "latency", "ms"),
    Constant("hbm_forward", "efficiency", "efficiency", "memory"),
    Constant("hbm_backward", "latency", "ms"),
    Constant("hbm_backward", "efficiency", "efficiency", "memory"),
    Constant("uvm_forward", "latency", "ms"),
    Constant("uvm_forward", "unique_efficiency", "efficiency", "host"),
    Constant("uvm_forward", "repeat_efficiency", "efficiency", "host"),
    Constant("uvm_backward", "latency", "ms"),
    Constant("uvm_backward", "gradient_efficiency", "efficiency", "memory"),
    Constant("uvm_backward", "row_efficiency", "efficiency", "host"),
    Constant("caching_forward", "latency", "ms"),
    Constant("caching_forward", "unique_id", "ns/id"),
    Constant("caching_forward", "miss_efficiency", "efficiency", "host"),
    Constant("caching_backward", "latency", "ms"),
    Constant("caching_backward", "gradient_efficiency", "efficiency", "memory"),
    Constant("caching_backward", "unique_id", "ns/id"),
    Constant("caching_backward", "state_efficiency", "efficiency", "host"),
    *(
        c
        for scope in ("domain", "network")
        for name in COLLECTIVES
        for c in _collective(scope, name)
    ),
)
CONSTANTS_BY_NAME = {constant.full_name: constant for constant in CONSTANTS}
COST_GROUPS = {
    group: tuple(each.name for each in CONSTANTS if each.group == group)
    for group in dict.fromkeys(constant.group for constant in CONSTANTS)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigure:
    """The value of a constant, and where it comes from.

    Attributes:
        value: In the constant's unit.
        low: The lower end of the 95 % interval; None: unknown.
        high: The upper end.
        n: Measured times that depend on the constant.
        source: Where the value comes from.
        note: What to keep in mind.
        sku: The SKU whose value it is. Other SKUs carry it over.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    source: str = ""
    note: str = ""
    sku: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeeds:
    """Bandwidths of one device in one direction, in bytes per ms."""

    memory: float
    host: float
    domain: float
    network: float


def core_constants(values: Mapping[str, float], links: LinkSpeeds) -> tuple[float, ...]:
    """Returns the constants as the native core takes them.

    Args:
        values: by full name; every constant must be there.
        links: the bandwidths that the efficiencies are shares of.
    """
    return tuple(_core_value(constant, values[constant.full_name], links) for constant in CONSTANTS)


def _core_value(constant: Constant, value: float, links: LinkSpeeds) -> float:
    if constant.unit == "ms":
        return value
    if constant.unit == "ns/id":
        return value * 1e-6
    assert constant.link is not None
    speed: float = getattr(links, constant.link)
    return 1 / (value * speed) if constant.unit == "efficiency" else value / speed
