"""Changes the cluster or the precision of a spec."""

from __future__ import annotations

from fastplan.model.job import CannotPlan
from fastplan.spec.hardware import find_hardware
from fastplan.spec.model import ModelSpec, replace

_FLOATS = frozenset({"fp64", "fp32", "fp16", "bf16", "fp8"})


def on_cluster(
    spec: ModelSpec,
    *,
    sku: str | None = None,
    world_size: int | None = None,
    local_world_size: int | None = None,
) -> ModelSpec:
    """Returns the spec with another cluster. Another SKU also changes the hosts.

    Args:
        spec: The spec.
        sku: A name or file for `find_hardware`.
        world_size: The number of ranks.
        local_world_size: Ranks per host.

    Raises:
        CannotPlan: The spec gives memory by rank, and only the number of ranks is changed.
        HardwareError: The SKU is unknown.
    """
    topology = spec.topology
    if sku is not None:
        topology = replace(
            topology,
            hardware=find_hardware(sku),
            local_world_size=None,
            pod_size=None,
            rank_hbm=None,
            rank_ddr=None,
            rank_ssd=None,
        )
    if world_size is not None and world_size != topology.world_size:
        if topology.rank_hbm or topology.rank_ddr or topology.rank_ssd:
            raise CannotPlan(
                "the spec gives memory rank by rank, so its number of ranks can't be changed; "
                "give a SKU too"
            )
        topology = replace(topology, world_size=world_size)
        if topology.local_world_size is not None and topology.local_world_size > world_size:
            topology = replace(topology, local_world_size=None)
    if local_world_size is not None:
        topology = replace(topology, local_world_size=local_world_size)
    return replace(spec, topology=topology)


def with_precision(spec: ModelSpec, dtype: str) -> ModelSpec:
    """Returns the spec with all floating-point tables in another precision."""
    tables = tuple(
        replace(table, dtype=dtype) if table.dtype in _FLOATS else table for table in spec.tables
    )
    return replace(spec, tables=tables)
