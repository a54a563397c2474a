"""Named hardware: devices and their hosts, as the numbers of TorchRec's Topology.

`skus.json` has the common SKUs, and a user's files add or override some. docs/hardware.md explains
the figures and their sources.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from fastplan.files.document import Document, SpecError, read_document
from fastplan.model.hardware_costs import (
    CONSTANTS_BY_NAME,
    CostFigure,
    LinkSpeeds,
    core_constants,
)
from fastplan.spec.skus import (
    BANDWIDTHS,
    MULTIPLIERS,
    SIZES,
    Share,
    Sku,
    lookup,
    names_of,
    read_skus,
    unknown_name,
)
from fastplan.spec.stock import DEVICES

PathLike = str | os.PathLike[str]

ENVIRONMENT = "FASTPLAN_SKUS"

_SUFFIXES = (".json", ".yaml", ".yml")


class HardwareError(ValueError):
    """Unknown hardware, or hosts that don't fit it. The message says what to do."""


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
    pod_size: int | None  # hosts that share an NVLink domain; None: each host is one
    bwd_compute_multiplier: float
    weighted_feature_bwd_compute_multiplier: float
    price: float | None = None  # per rank and hour, in the user's currency
    about: str = ""
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # by figure
    # Constants of the hardware costs, by full name such as `hbm_forward.latency`.
    costs: Mapping[str, CostFigure] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise HardwareError(f"`device` must be one of {', '.join(DEVICES)}")
        for name in SIZES:
            if getattr(self, name) < 0:
                raise HardwareError(f"`{name}` must not be negative")
        for name in BANDWIDTHS:
            if not 0 < getattr(self, name) < math.inf:
                raise HardwareError(f"`{name}` must be a positive number of bytes per ms")
        if self.ranks_per_host < 1 or (self.pod_size is not None and self.pod_size < 1):
            raise HardwareError("`ranks_per_host` and `pod_size` must be at least 1")


def find_hardware(name_or_path: str, *, extra: Sequence[PathLike] = ()) -> Hardware:
    """Finds hardware by its name or in a SKU file.

    Args:
        name_or_path: A name or alias from `known_hardware` (case and separators don't matter), a
            file with one SKU, or `file:name` for a file with several.
        extra: More SKU files, whose names are known too.

    Raises:
        HardwareError: The name is unknown.
        SpecError: A file is invalid.
    """
    known = _known(extra)
    sku = lookup(name_or_path, known)
    if sku is not None:
        return _built(sku)
    path, name = _file_and_name(name_or_path)
    if path is None:
        raise HardwareError(f"{unknown_name(name_or_path, known)}; or give a file")
    own = read_skus(read_document(path), known)
    if name is None:
        if len(own) > 1:
            raise HardwareError(f"{path}: which SKU? Add one as `:<name>`; known: {names_of(own)}")
        return _built(next(iter(own.values())))
    sku = lookup(name, own)
    if sku is None:
        raise HardwareError(f"{path}: {unknown_name(name, own)}")
    return _built(sku)


def hardware_of_file(name_or_path: str) -> Hardware:
    """Finds the hardware that a spec or a sweep names, like `find_hardware`.

    A spec from a stranger can name any file, so errors quote nothing from that file.

    Raises:
        HardwareError: The name is unknown, or its file is invalid.
    """
    try:
        return find_hardware(name_or_path)
    except SpecError as error:
        if isinstance(error.__cause__, OSError):
            raise HardwareError(str(error)) from error
        raise HardwareError(
            f"{error.file} is not a valid SKU file; `fastplan skus FILE` shows the error"
        ) from error


def known_hardware() -> list[Hardware]:
    """Returns all named hardware: shipped, and from the files in FASTPLAN_SKUS.

    Raises:
        HardwareError: A file in FASTPLAN_SKUS is invalid.
    """
    return [_built(sku) for sku in _known(()).values()]


def read_hardware(document: Document) -> list[Hardware]:
    """Reads the hardware in a user's document. Its SKUs may be `like` any known one.

    Raises:
        SpecError: The document is invalid.
    """
    return [_built(sku) for sku in read_skus(document, _known(())).values()]


def for_job(hardware: Hardware, world_size: int, local_world_size: int | None = None) -> Hardware:
    """Returns the hardware for a job of this size: ranks per host, pods and network.

    TorchRec needs full pods, so `pod_size` becomes the largest number of hosts that divides the
    job's. If one pod holds the whole job, its hosts use NVLink instead of the network.

    Args:
        hardware: The hardware.
        world_size: The number of ranks.
        local_world_size: Ranks per host; default: the hardware's.

    Raises:
        HardwareError: A number is below 1, or the ranks don't fill the hosts and
            `local_world_size` is not given.
    """
    if world_size < 1 or (local_world_size is not None and local_world_size < 1):
        raise HardwareError("`world_size` and `local_world_size` must be at least 1")
    local = local_world_size or min(world_size, hardware.ranks_per_host)
    if local_world_size is None and world_size % local:
        raise HardwareError(
            f"{world_size} ranks do not fill hosts of {local} ({hardware.name}): change the world "
            "size, or set the ranks per host: `--local-world-size` on a command line, "
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


def link_speeds(hardware: Hardware, network: float | None = None) -> LinkSpeeds:
    """Returns the bandwidths in one direction that efficiencies of the hardware costs refer to.

    `intra_host_bw` counts both directions, in every SKU. `for_job` replaces `inter_host_bw` if one
    pod holds the whole job; no exchange uses the network then.

    Args:
        hardware: The hardware.
        network: Bytes per ms of a rank's network card; default: `inter_host_bw`.
    """
    on_cpu = hardware.device == "cpu"
    return LinkSpeeds(
        memory=hardware.ddr_mem_bw if on_cpu else hardware.hbm_mem_bw,
        host=hardware.hbm_to_ddr_mem_bw,
        domain=hardware.intra_host_bw / 2,
        network=hardware.inter_host_bw if network is None else network,
    )


def hardware_constants(hardware: Hardware, network: float | None = None) -> tuple[float, ...]:
    """Returns the constants of the hardware costs as the native core takes them.

    Args:
        hardware: The hardware.
        network: Bytes per ms of a rank's network card; default: `inter_host_bw`.

    Raises:
        HardwareError: The hardware lacks constants.
    """
    missing = [name for name in CONSTANTS_BY_NAME if name not in hardware.costs]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise HardwareError(
            f"{hardware.name} has no `{missing[0]}`{more}, which hardware costs need: set "
            "`costs_from` to a SKU that has them, such as h100, or give them in `costs`"
        )
    values = {name: hardware.costs[name].value for name in CONSTANTS_BY_NAME}
    return core_constants(values, link_speeds(hardware, network))


def topology_arguments(
    hardware: Hardware, world_size: int, local_world_size: int | None = None
) -> dict[str, Any]:
    """Returns keyword arguments of TorchRec's Topology for a job on this hardware.

    Args:
        hardware: The hardware.
        world_size: The number of ranks.
        local_world_size: Ranks per host; default: the hardware's.

    Raises:
        HardwareError: As `for_job`.
    """
    seen = for_job(hardware, world_size, local_world_size)
    return {
        "world_size": world_size,
        "local_world_size": seen.ranks_per_host,
        "pod_size": seen.pod_size,
        "compute_device": seen.device,
        **{f"{name}_cap": getattr(seen, name) for name in SIZES},
        **{name: getattr(seen, name) for name in BANDWIDTHS},
        # TorchRec has integers here, and its hash differs between 2 and 2.0.
        **{name: _int_if_whole(getattr(seen, name)) for name in MULTIPLIERS},
    }


def _int_if_whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _built(sku: Sku) -> Hardware:
    ranks = sku.figures["ranks_per_host"]
    figures = {"pod_size": None, **sku.figures}
    for name, figure in figures.items():
        if isinstance(figure, Share):
            whole = name in SIZES
            figures[name] = figure.total // ranks if whole else figure.total / ranks
    return Hardware(
        name=sku.name,
        about=sku.about,
        sources=dict(sku.sources),
        costs=dict(sku.costs),
        **figures,
    )


@cache
def _shipped() -> Mapping[str, Sku]:
    return read_skus(read_document(Path(__file__).with_name("skus.json")), {})


def _known(extra: Iterable[PathLike]) -> dict[str, Sku]:
    """Returns SKUs by key: shipped ones, overridden by FASTPLAN_SKUS and then by `extra`."""
    known = dict(_shipped())
    try:
        for path in filter(None, os.environ.get(ENVIRONMENT, "").split(os.pathsep)):
            _override(known, path)
    except SpecError as error:
        raise HardwareError(f"{ENVIRONMENT}: {error}") from error
    for other in extra:
        _override(known, other)
    return known


def _override(known: dict[str, Sku], path: PathLike) -> None:
    for key, sku in read_skus(read_document(path), known).items():
        aliases = known[key].aliases if key in known else ()
        known[key] = sku._replace(aliases=(*sku.aliases, *aliases))


def _file_and_name(text: str) -> tuple[str | None, str | None]:
    head, colon, tail = text.rpartition(":")
    if colon and tail and head.lower().endswith(_SUFFIXES):
        return head, tail
    if text.lower().endswith(_SUFFIXES) or "/" in text or os.sep in text:
        return text, None
    return None, None
