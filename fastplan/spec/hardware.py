"""Named hardware: devices and the hosts they come in, as the numbers of TorchRec's Topology.

`skus.json` has the common ones, a user's files add or override; docs/hardware.md says what the
figures mean and where they are from.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.spec.document import Document, read_document
from fastplan.spec.fields import Fields
from fastplan.spec.nodes import SpecError, below
from fastplan.spec.stock import DEVICES
from fastplan.spec.units import shown

PathLike = str | os.PathLike[str]

ENVIRONMENT = "FASTPLAN_SKUS"

_SIZES = ("hbm", "ddr", "ssd")
_BANDWIDTHS = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)
_MULTIPLIERS = ("bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier")
FIGURES = (*_SIZES, *_BANDWIDTHS, "ranks_per_host", "pod_size", *_MULTIPLIERS)
# What the ranks of a host share may be given for the host.
_OF_HOST = {"host_ddr": "ddr", "host_ssd": "ssd", "host_ddr_mem_bw": "ddr_mem_bw"}
_FIELDS = ("like", "about", "aliases", "device", *FIGURES, *_OF_HOST, "price", "sources")
_OPTIONAL = frozenset({"pod_size"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+ -]{0,63}")
_MOST_LIKES = 20
_SUFFIXES = (".json", ".yaml", ".yml")


class HardwareError(ValueError):
    """Unknown hardware, or hosts that don't fit it; the text names the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A device and its share of a host: sizes in bytes per rank, bandwidths in bytes per ms."""

    name: str
    device: str
    hbm: int
    ddr: int
    ssd: int
    hbm_mem_bw: float
    ddr_mem_bw: float
    ssd_mem_bw: float
    hbm_to_ddr_mem_bw: float
    intra_host_bw: float
    inter_host_bw: float
    ranks_per_host: int
    pod_size: int | None  # hosts that share an NVLink domain; None where a host is one of its own
    bwd_compute_multiplier: float
    weighted_feature_bwd_compute_multiplier: float
    price: float | None = None  # per rank and hour, in the user's currency
    about: str = ""
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # by figure

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise HardwareError(f"`device` must be one of {', '.join(DEVICES)}")
        for name in _SIZES:
            if getattr(self, name) < 0:
                raise HardwareError(f"`{name}` must not be negative")
        for name in _BANDWIDTHS:
            if not 0 < getattr(self, name) < math.inf:
                raise HardwareError(f"`{name}` must be a positive number of bytes per ms")
        if self.ranks_per_host < 1 or (self.pod_size is not None and self.pod_size < 1):
            raise HardwareError("`ranks_per_host` and `pod_size` must be at least 1")


def find_hardware(name_or_path: str, *, extra: Sequence[PathLike] = ()) -> Hardware:
    """Hardware by name, of a file that holds just one, or `file:name` of a file with several.

    Names are those of `known_hardware` and their aliases; case and separators don't matter.
    Raises HardwareError for an unknown name, and SpecError for a file that is wrong.
    """
    known = _known(extra)
    sku = _lookup(name_or_path, known)
    if sku is not None:
        return sku.build()
    path, name = _file_and_name(name_or_path)
    if path is None:
        raise HardwareError(f"{_unknown(name_or_path, known)}; or give a file")
    own = _read(read_document(path), known)
    if name is None:
        if len(own) > 1:
            raise HardwareError(f"{path}: which SKU? Add one as `:<name>`; known: {_names(own)}")
        return next(iter(own.values())).build()
    sku = _lookup(name, own)
    if sku is None:
        raise HardwareError(f"{path}: {_unknown(name, own)}")
    return sku.build()


def hardware_of_file(name_or_path: str) -> Hardware:
    """The hardware that a spec or a sweep names, as `find_hardware` finds it.

    Its writer may have named any file, so an error quotes nothing of it. Raises HardwareError.
    """
    try:
        return find_hardware(name_or_path)
    except SpecError as error:
        if isinstance(error.__cause__, OSError):
            raise HardwareError(str(error)) from error
        raise HardwareError(
            f"{error.file} is no file of hardware that can be used; `fastplan skus FILE` tells "
            "what is wrong there"
        ) from error


def known_hardware(extra: Sequence[PathLike] = ()) -> list[Hardware]:
    """All hardware with a name: shipped, of the files in FASTPLAN_SKUS, of the `extra` files."""
    return [sku.build() for sku in _known(extra).values()]


def read_hardware(document: Document) -> list[Hardware]:
    """The hardware in a user's document; it may be `like` any that is known."""
    return [sku.build() for sku in _read(document, _known(())).values()]


def for_job(hardware: Hardware, world_size: int, local_world_size: int | None = None) -> Hardware:
    """The hardware as a job of so many ranks meets it: with its hosts, its pods and its network.

    Pods are cut to the largest number of hosts that divides the job's, since TorchRec wants all
    pods full. When one pod holds the whole job, its hosts talk over NVLink and not the network.
    """
    if world_size < 1 or (local_world_size is not None and local_world_size < 1):
        raise HardwareError("`world_size` and `local_world_size` must be at least 1")
    local = local_world_size or min(world_size, hardware.ranks_per_host)
    if local_world_size is None and world_size % local:
        raise HardwareError(
            f"{world_size} ranks do not fill hosts of {local} ({hardware.name}): change the world "
            "size, or give the ranks per host as `--local-world-size` on a command line, "
            "`local_world_size` elsewhere"
        )
    if hardware.pod_size is None:
        return replace(hardware, ranks_per_host=local)
    hosts = max(1, world_size // local)
    most = min(hardware.pod_size, hosts)
    return replace(
        hardware,
        ranks_per_host=local,
        pod_size=next(size for size in range(most, 0, -1) if hosts % size == 0),
        inter_host_bw=hardware.intra_host_bw if most == hosts else hardware.inter_host_bw,
    )


def topology_arguments(
    hardware: Hardware, world_size: int, local_world_size: int | None = None
) -> dict[str, Any]:
    """Keyword arguments for TorchRec's Topology: what a job on this hardware should use.

    Raises HardwareError for ranks that do not fill hosts, unless `local_world_size` says how many
    a host has.
    """
    seen = for_job(hardware, world_size, local_world_size)
    return {
        "world_size": world_size,
        "local_world_size": seen.ranks_per_host,
        "pod_size": seen.pod_size,
        "compute_device": seen.device,
        **{f"{name}_cap": getattr(seen, name) for name in _SIZES},
        **{name: getattr(seen, name) for name in _BANDWIDTHS},
        # TorchRec has whole numbers here, and its hash tells 2 from 2.0.
        **{name: _whole_if_it_is(getattr(seen, name)) for name in _MULTIPLIERS},
    }


def _whole_if_it_is(number: float) -> float:
    return int(number) if number == int(number) else number


class _Share(NamedTuple):
    """A figure of a whole host, of which each rank has its share."""

    total: Any


class _Sku(NamedTuple):
    """A SKU as files have it, so that one that is like it can have other hosts."""

    name: str
    aliases: tuple[str, ...]
    about: str
    figures: dict[str, Any]  # by field of Hardware
    sources: dict[str, str]

    def build(self) -> Hardware:
        ranks = self.figures["ranks_per_host"]
        figures = {"pod_size": None, **self.figures}
        for name, figure in figures.items():
            if isinstance(figure, _Share):
                whole = name in _SIZES
                figures[name] = figure.total // ranks if whole else figure.total / ranks
        return Hardware(name=self.name, about=self.about, sources=dict(self.sources), **figures)


def _key(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


@cache
def _shipped() -> Mapping[str, _Sku]:
    return _read(read_document(Path(__file__).with_name("skus.json")), {})


def _known(extra: Iterable[PathLike]) -> dict[str, _Sku]:
    """Shipped SKUs by key, overridden by the environment's files and then by the extra ones."""
    known = dict(_shipped())
    try:
        for path in filter(None, os.environ.get(ENVIRONMENT, "").split(os.pathsep)):
            _override(known, path)
    except SpecError as error:
        raise HardwareError(f"{ENVIRONMENT}: {error}") from error
    for other in extra:
        _override(known, other)
    return known


def _override(known: dict[str, _Sku], path: PathLike) -> None:
    for key, sku in _read(read_document(path), known).items():
        aliases = known[key].aliases if key in known else ()
        known[key] = sku._replace(aliases=(*sku.aliases, *aliases))


def _lookup(name: str, known: Mapping[str, _Sku]) -> _Sku | None:
    """Names come before aliases, later aliases before earlier ones."""
    key = _key(name)
    if key in known:
        return known[key]
    having = [sku for sku in known.values() if key in map(_key, sku.aliases)]
    return having[-1] if having else None


def _unknown(name: str, known: Mapping[str, _Sku]) -> str:
    from difflib import get_close_matches

    by_key = {_key(each): each for sku in known.values() for each in (sku.name, *sku.aliases)}
    wanted = _key(name[:80])
    near = get_close_matches(wanted, by_key, n=3)
    # A character too many or too few at the end comes before other ones in the middle.
    near.sort(key=lambda key: not (key.startswith(wanted) or wanted.startswith(key)))
    hint = f" (did you mean {by_key[near[0]]}?)" if near else ""
    return f"no hardware is called {shown(name)}{hint}; known: {_names(known)}"


def _names(skus: Mapping[str, _Sku]) -> str:
    return ", ".join(sku.name for sku in skus.values())


def _file_and_name(text: str) -> tuple[str | None, str | None]:
    head, colon, tail = text.rpartition(":")
    if colon and tail and head.lower().endswith(_SUFFIXES):
        return head, tail
    if text.lower().endswith(_SUFFIXES) or "/" in text or os.sep in text:
        return text, None
    return None, None


def _read(document: Document, known: Mapping[str, _Sku]) -> dict[str, _Sku]:
    return _Reader(document, known).skus()


class _Reader:
    """Reads the SKUs of one document; `like` looks in the document first, then among `known`."""

    def __init__(self, document: Document, known: Mapping[str, _Sku]) -> None:
        self._file = Path(document.file).name
        self._known = known
        self._fields: dict[str, Fields] = {}
        self._names: dict[str, str] = {}
        self._done: dict[str, _Sku] = {}
        root = document.root
        if not isinstance(root.value, dict) or "skus" not in root.value:
            fields = Fields(document, root, "", known=("name", *_FIELDS))
            self._add(fields.text("name", Path(document.file).stem), fields, at="name")
            return
        several = Fields(document, root, "", known=("skus",))
        for name, node in several.mapping("skus"):
            self._add(name, Fields(document, node, below("skus", name), known=_FIELDS))
        if not self._fields:
            raise several.error("skus", "must have at least one SKU")

    def _add(self, name: str, fields: Fields, at: str | None = None) -> None:
        key = _key(name)
        _check_name(name, fields, at)
        if key in self._fields:
            raise fields.error(None, f"is {self._names[key]!r} in another spelling")
        self._fields[key] = fields
        self._names[key] = name

    def skus(self) -> dict[str, _Sku]:
        return {key: self._sku(key, ()) for key in self._fields}

    def _sku(self, key: str, heirs: tuple[str, ...]) -> _Sku:
        if key not in self._done:
            fields = self._fields[key]
            base = self._base(key, (*heirs, key))
            own = _figures(fields)
            figures = {**base.figures, **own} if base is not None else own
            _check(fields, figures)
            aliases = fields.texts("aliases", ())
            for alias in aliases:
                _check_name(alias, fields, "aliases")
            self._done[key] = _Sku(
                name=self._names[key],
                aliases=aliases,
                about=fields.text("about", base.about if base is not None else ""),
                figures=figures,
                sources={
                    **(base.sources if base is not None else {}),
                    **dict.fromkeys((name for name in FIGURES if name in own), self._file),
                    **_sources(fields),
                },
            )
        return self._done[key]

    def _base(self, key: str, heirs: tuple[str, ...]) -> _Sku | None:
        fields = self._fields[key]
        like = fields.text("like", None)
        if like is None:
            return None
        # One that is like its own name refines the one that it overrides.
        wanted = _key(like)
        if wanted in self._fields and wanted != key:
            if wanted in heirs:
                circle = " -> ".join(self._names[each] for each in (*heirs, wanted))
                raise fields.error("like", f"goes in a circle: {circle}")
            if len(heirs) > _MOST_LIKES:
                raise fields.error("like", f"is one of more than {_MOST_LIKES} in a row")
            return self._sku(wanted, heirs)
        base = _lookup(like, self._known)
        if base is None:
            raise fields.error("like", _unknown(like, {**self._known, **self._done}))
        return base


def _check_name(name: str, fields: Fields, at: str | None) -> None:
    if _NAME.fullmatch(name) is None:
        allowed = "letters, digits, . _ + - and spaces, 64 at most"
        raise fields.error(at, f"can't be called {shown(name)}: {allowed}")


def _figures(fields: Fields) -> dict[str, Any]:
    """What a SKU states itself, by field of Hardware."""
    figures: dict[str, Any] = {}
    if "device" in fields:
        figures["device"] = fields.text("device", choices=DEVICES)
    for name in _SIZES:
        if name in fields:
            figures[name] = fields.size(name)
    for name in _BANDWIDTHS:
        if name in fields:
            figures[name] = fields.bandwidth(name)
    for host, name in _OF_HOST.items():
        if host in fields:
            if name in fields:
                raise fields.error(host, f"is of a host and `{name}` of a rank: give one of them")
            figures[name] = _Share(fields.size(host) if name in _SIZES else fields.bandwidth(host))
    if "ranks_per_host" in fields:
        figures["ranks_per_host"] = fields.whole("ranks_per_host", least=1)
    if "pod_size" in fields:
        figures["pod_size"] = fields.whole("pod_size", None, least=1)
    for name in (*_MULTIPLIERS, "price"):
        if name in fields:
            figures[name] = fields.number(name, least=0)
    return figures


def _check(fields: Fields, figures: dict[str, Any]) -> None:
    for name in ("device", *FIGURES):
        if name not in figures and name not in _OPTIONAL:
            raise fields.error(
                name, "is missing: give it, or `like` with the name of hardware to take it from"
            )
    if figures["device"] != "cpu" and figures["hbm"] == 0:
        raise fields.error("hbm", f"must be more than 0 on {figures['device']}")


def _sources(fields: Fields) -> dict[str, str]:
    given = fields.nested("sources", FIGURES)
    return {} if given is None else {name: given.text(name) for name in FIGURES if name in given}
