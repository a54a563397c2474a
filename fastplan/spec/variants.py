"""The same model on another cluster, with another batch or precision."""

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
    """The spec with what is given in place of its own. Another SKU brings its own hosts."""
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
                "give a SKU as well"
            )
        topology = replace(topology, world_size=world_size)
        if topology.local_world_size is not None and topology.local_world_size > world_size:
            topology = replace(topology, local_world_size=None)
    if local_world_size is not None:
        topology = replace(topology, local_world_size=local_world_size)
    return replace(spec, topology=topology)


def with_precision(spec: ModelSpec, dtype: str) -> ModelSpec:
    """The spec with tables of floating point in another precision; others stay as they are."""
    tables = tuple(
        replace(table, dtype=dtype) if table.dtype in _FLOATS else table for table in spec.tables
    )
    return replace(spec, tables=tables)
