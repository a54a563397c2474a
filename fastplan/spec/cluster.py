"""The cluster of a spec: hardware, ranks, and the memory of each."""

from __future__ import annotations

from dataclasses import dataclass

from fastplan.model.job import CannotPlan
from fastplan.model.units import format_size
from fastplan.spec.hardware import Hardware, find_hardware, for_job
from fastplan.spec.model import ModelSpec
from fastplan.spec.stock_rules import Shape

DEFAULT_HARDWARE = "torchrec"
_MOST_MEMORY = 2**61  # per kind, on all ranks together; cpp/core/problem.cpp has the same limit


def check_cluster(spec: ModelSpec) -> None:
    """Checks the spec's cluster, if it has one.

    Raises:
        CannotPlan: The number of ranks is missing or invalid.
        HardwareError: The ranks don't fill the hardware's hosts.
    """
    if spec.topology.world_size is not None:
        cluster_of(spec)


def cluster_of(spec: ModelSpec) -> tuple[Hardware, Shape]:
    """Returns the hardware and the number of ranks. Raises as `check_cluster`."""
    topology = spec.topology
    world = topology.world_size
    if world is None:
        raise CannotPlan(
            "the number of ranks is missing: give `--world-size` on a command line, `world_size` "
            "in Python, or `topology.world_size` in the spec"
        )
    hardware = for_job(
        topology.hardware or find_hardware(DEFAULT_HARDWARE), world, topology.local_world_size
    )
    local = hardware.ranks_per_host
    pod = topology.pod_size or hardware.pod_size
    if pod is not None and pod > world:
        raise CannotPlan(f"`pod_size` {pod} is more than the {world} ranks")
    return hardware, Shape(world, local, local if pod is None else pod * local)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by rank, before the reservation."""

    hbm: tuple[int, ...]
    ddr: tuple[int, ...]
    ssd: tuple[int, ...]
    main: tuple[int, ...]  # if given by rank: TorchRec then splits rows by memory

    @staticmethod
    def of(spec: ModelSpec, hardware: Hardware, ranks: int) -> Memory:
        topology = spec.topology
        for name in ("rank_hbm", "rank_ddr", "rank_ssd"):
            given = getattr(topology, name)
            if given is not None and len(given) != ranks:
                raise CannotPlan(f"`topology.{name}` has {len(given)} entries for {ranks} ranks")
        on_host = hardware.device == "cpu"
        main = topology.rank_ddr if on_host else topology.rank_hbm
        hbm = 0 if on_host else hardware.hbm
        memory = Memory(
            hbm=topology.rank_hbm or (hbm,) * ranks,
            ddr=topology.rank_ddr or (hardware.ddr,) * ranks,
            ssd=topology.rank_ssd or (hardware.ssd,) * ranks,
            main=main or (),
        )
        for tier in ("hbm", "ddr", "ssd"):
            sizes = getattr(memory, tier)
            if sum(sizes) >= _MOST_MEMORY:
                name = tier if getattr(topology, f"rank_{tier}") is None else f"rank_{tier}"
                raise CannotPlan(
                    f"`topology.{name}`: {format_size(max(sizes))} per rank are too much for "
                    f"{ranks} ranks: give less than {format_size(_MOST_MEMORY // ranks)}"
                )
        return memory
