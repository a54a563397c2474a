"""Reads SKU files: named hardware, written by people."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fastplan.files.codec import decode
from fastplan.files.document import Document, SpecError, Step
from fastplan.files.kinds import Text, bandwidth, choice, choice_problem, number, size, whole
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME, COST_GROUPS, CostFigure
from fastplan.model.limits import MOST, MOST_RANKS
from fastplan.model.units import shown
from fastplan.spec.stock import DEVICES

SIZES = ("hbm", "ddr", "ssd")
BANDWIDTHS = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)
MULTIPLIERS = ("bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier")
FIGURES = (*SIZES, *BANDWIDTHS, "ranks_per_host", "pod_size", *MULTIPLIERS)
# Figures of a whole host, which its ranks share.
_OF_HOST = {"host_ddr": "ddr", "host_ssd": "ssd", "host_ddr_mem_bw": "ddr_mem_bw"}
_OPTIONAL = frozenset({"pod_size"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+ -]{0,63}")
_MOST_LIKES = 20
_MOST_COST = 1e6  # of a constant, in its unit
_LEAST_EFFICIENCY = 1e-9

Device = Annotated[str, choice(DEVICES)]
Figure = Annotated[str, choice(FIGURES)]
Ranks = Annotated[int, whole(1, MOST_RANKS)]
Size = Annotated[int, size()] | UnsetType
Bandwidth = Annotated[float, bandwidth()] | UnsetType
Multiplier = Annotated[float, number(0, MOST["bwd_compute_multiplier"])] | UnsetType


class DeviceFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a device and its links; UNSET if the file omits them."""

    device: Device | UnsetType = UNSET
    hbm: Size = UNSET
    ddr: Size = UNSET
    ssd: Size = UNSET
    hbm_mem_bw: Bandwidth = UNSET
    ddr_mem_bw: Bandwidth = UNSET
    ssd_mem_bw: Bandwidth = UNSET
    hbm_to_ddr_mem_bw: Bandwidth = UNSET
    intra_host_bw: Bandwidth = UNSET
    inter_host_bw: Bandwidth = UNSET
    bwd_compute_multiplier: Multiplier = UNSET
    weighted_feature_bwd_compute_multiplier: Multiplier = UNSET

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the fields with these names that the file has."""
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not UNSET}


class CostFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A constant of the hardware costs in a file. A bare number is its value."""

    value: Annotated[float, number()]  # its limits depend on the constant
    low: Annotated[float, number(0)] | None = None
    high: Annotated[float, number(0)] | None = None
    n: Annotated[int, whole(0)] = 0
    source: Text | None = None
    note: Text | None = None


def _read_cost(value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"value": value} if is_number else value


Cost = Annotated[CostFields, msgspec.Meta(extra={"read": _read_cost})]
CostGroup = Annotated[str, choice(COST_GROUPS)]


class SkuFields(DeviceFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SKU in a file."""

    like: Text | None = None
    about: Text | None = None
    aliases: tuple[Text, ...] = ()
    ranks_per_host: Ranks | UnsetType = UNSET
    pod_size: Ranks | UnsetType | None = UNSET
    price: Annotated[float, number(0, MOST["price"])] | UnsetType = UNSET
    host_ddr: Size = UNSET
    host_ssd: Size = UNSET
    host_ddr_mem_bw: Bandwidth = UNSET
    sources: dict[Figure, Text] = msgspec.field(default_factory=dict)
    costs: dict[CostGroup, dict[Text, Cost]] = msgspec.field(default_factory=dict)
    costs_from: Text | None = None


class NamedSku(SkuFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The only SKU of a file."""

    name: Text | None = None


class SkusFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file with several SKUs."""

    skus: dict[Text, SkuFields]


class Share(NamedTuple):
    """A figure of a whole host, which its ranks share equally."""

    total: Any


class Sku(NamedTuple):
    """A SKU with unresolved shares, so that a SKU that is `like` it can have other hosts."""

    name: str
    aliases: tuple[str, ...]
    about: str
    figures: dict[str, Any]  # by field of Hardware
    sources: dict[str, str]
    costs: dict[str, CostFigure]  # by full name


def key_of(name: str) -> str:
    """Returns the name without separators and case, for comparison."""
    return re.sub(r"[-_ ]", "", name).lower()


def lookup(name: str, known: Mapping[str, Sku]) -> Sku | None:
    """Finds a SKU: by name first, then by alias, where later SKUs override earlier ones."""
    key = key_of(name)
    if key in known:
        return known[key]
    having = [sku for sku in known.values() if key in map(key_of, sku.aliases)]
    return having[-1] if having else None


def unknown_name(name: str, known: Mapping[str, Sku]) -> str:
    """Returns the message for an unknown name, with the nearest and all known names."""
    from difflib import get_close_matches

    by_key = {key_of(each): each for sku in known.values() for each in (sku.name, *sku.aliases)}
    wanted = key_of(name[:80])
    near = get_close_matches(wanted, by_key, n=3)
    # Prefer names that differ only at the end.
    near.sort(key=lambda key: not (key.startswith(wanted) or wanted.startswith(key)))
    hint = f" (did you mean {by_key[near[0]]}?)" if near else ""
    return f"no hardware is called {shown(name)}{hint}; known: {names_of(known)}"


def names_of(skus: Mapping[str, Sku]) -> str:
    """Returns the names, separated by commas."""
    return ", ".join(sku.name for sku in skus.values())


def read_skus(document: Document, known: Mapping[str, Sku]) -> dict[str, Sku]:
    """Reads the SKUs of a document, by key.

    Args:
        document: A SKU file of a user.
        known: More SKUs that those of the document may be `like`.

    Raises:
        SpecError: The document is invalid. The message says where.
    """
    return _Reader(document, known).skus()


class _Reader:
    """Reads the SKUs of one document; `like` looks in the document first, then among `known`."""

    def __init__(self, document: Document, known: Mapping[str, Sku]) -> None:
        self._document = document
        self._file = Path(document.file).name
        self._known = known
        self._skus: dict[str, SkuFields] = {}
        self._names: dict[str, str] = {}
        self._steps: dict[str, tuple[Step, ...]] = {}
        self._done: dict[str, Sku] = {}
        root = document.root
        if not isinstance(root, dict) or "skus" not in root:
            one = decode(document, NamedSku)
            name = Path(document.file).stem if one.name is None else one.name
            self._add(name, one, (), ("name",))
            return
        for name, sku in decode(document, SkusFile).skus.items():
            self._add(name, sku, ("skus", name), ("skus", name))
        if not self._skus:
            raise document.error(("skus",), "must have at least one SKU")

    def _add(
        self, name: str, sku: SkuFields, steps: tuple[Step, ...], named_at: tuple[Step, ...]
    ) -> None:
        key = key_of(name)
        self._check_name(name, named_at)
        if key in self._skus:
            raise self._document.error(steps, f"is {self._names[key]!r} in another spelling")
        self._skus[key], self._names[key], self._steps[key] = sku, name, steps

    def skus(self) -> dict[str, Sku]:
        return {key: self._sku(key, ()) for key in self._skus}

    def _sku(self, key: str, heirs: tuple[str, ...]) -> Sku:
        if key not in self._done:
            fields = self._skus[key]
            base = self._other(key, "like", (*heirs, key))
            lender = self._other(key, "costs_from", (*heirs, key))
            own = self._figures(key)
            figures = {**base.figures, **own} if base is not None else own
            self._check(key, figures)
            for alias in fields.aliases:
                self._check_name(alias, (*self._steps[key], "aliases"))
            inherited = base.about if base is not None else ""
            self._done[key] = Sku(
                name=self._names[key],
                aliases=fields.aliases,
                about=inherited if fields.about is None else fields.about,
                figures=figures,
                sources={
                    **(base.sources if base is not None else {}),
                    **dict.fromkeys((name for name in FIGURES if name in own), self._file),
                    **fields.sources,
                },
                costs={
                    **(base.costs if base is not None else {}),
                    **(lender.costs if lender is not None else {}),
                    **self._costs(key),
                },
            )
        return self._done[key]

    def _other(self, key: str, field: str, heirs: tuple[str, ...]) -> Sku | None:
        """Returns the SKU that a field names: `like` or `costs_from`."""
        other = getattr(self._skus[key], field)
        if other is None:
            return None
        # A SKU that is like its own name changes the SKU that it overrides.
        wanted = key_of(other)
        if wanted in self._skus and wanted != key:
            if wanted in heirs:
                circle = " -> ".join(self._names[each] for each in (*heirs, wanted))
                raise self._error(key, field, f"is circular: {circle}")
            if len(heirs) > _MOST_LIKES:
                raise self._error(key, field, f"is part of a chain of more than {_MOST_LIKES}")
            return self._sku(wanted, heirs)
        base = lookup(other, self._known)
        if base is None:
            raise self._error(key, field, unknown_name(other, {**self._known, **self._done}))
        return base

    def _costs(self, key: str) -> dict[str, CostFigure]:
        """Returns the SKU's own constants of the hardware costs, by full name."""
        found = {}
        for group, constants in self._skus[key].costs.items():
            for name, cost in constants.items():
                steps = (*self._steps[key], "costs", group, name)
                full_name = f"{group}.{name}"
                if full_name not in CONSTANTS_BY_NAME:
                    problem = f"the name {choice_problem(name, COST_GROUPS[group])}"
                    raise self._document.error(steps, problem)
                self._check_cost(full_name, cost, steps)
                found[full_name] = CostFigure(
                    value=cost.value,
                    low=cost.low,
                    high=cost.high,
                    n=cost.n,
                    source=self._file if cost.source is None else cost.source,
                    note=cost.note or "",
                    sku=self._names[key],
                )
        return found

    def _check_cost(self, full_name: str, cost: CostFields, steps: tuple[Step, ...]) -> None:
        value = cost.value
        is_efficiency = CONSTANTS_BY_NAME[full_name].unit == "efficiency"
        least = _LEAST_EFFICIENCY if is_efficiency else 0
        if not least <= value <= _MOST_COST:
            problem = f"must be from {least:g} to {_MOST_COST:g}, not {value}"
            raise self._document.error(steps, problem)
        low, high = cost.low, cost.high
        if not (value if low is None else low) <= value <= (value if high is None else high):
            raise self._document.error(steps, "must be from `low` to `high`")

    def _figures(self, key: str) -> dict[str, Any]:
        """Returns the SKU's own figures, by field of Hardware."""
        fields = self._skus[key]
        figures = fields.given(("device", *FIGURES, "price"))
        for host, total in fields.given(_OF_HOST).items():
            name = _OF_HOST[host]
            if name in figures:
                problem = f"is per host and `{name}` is per rank: give only one"
                raise self._error(key, host, problem)
            figures[name] = Share(total)
        return figures

    def _check(self, key: str, figures: dict[str, Any]) -> None:
        for name in ("device", *FIGURES):
            if name not in figures and name not in _OPTIONAL:
                problem = "is missing: give it, or set `like` to the name of hardware that has it"
                raise self._error(key, name, problem)
        if figures["device"] != "cpu" and figures["hbm"] == 0:
            raise self._error(key, "hbm", f"must be more than 0 on {figures['device']}")

    def _check_name(self, name: str, steps: tuple[Step, ...]) -> None:
        if _NAME.fullmatch(name) is None:
            allowed = "letters, digits, . _ + - and spaces, 64 at most"
            raise self._document.error(steps, f"can't be called {shown(name)}: {allowed}")

    def _error(self, key: str, field: str, problem: str) -> SpecError:
        return self._document.error((*self._steps[key], field), problem)
