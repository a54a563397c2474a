"""Exports a real model to a spec that can be planned without TorchRec.

The spec is checked before it is returned: its request must equal the planner's request for the
module, to the bit.
"""

from __future__ import annotations

import math
from typing import Any

from torchrec.distributed.planner import storage_reservations

from fastplan.cache.why_miss import differences
from fastplan.model.job import CannotPlan, Job
from fastplan.model.references import is_reference
from fastplan.model.request import Cluster, MenuItem, Request
from fastplan.planning.policy import key_of
from fastplan.spec.hardware import Hardware
from fastplan.spec.lower import lower
from fastplan.spec.model import (
    MenuEntry,
    ModelSpec,
    ReservationSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
    replace,
)
from fastplan.spec.stock import VERSIONS
from fastplan.spec.stock_rules import COST_FIELDS, POLICIES
from fastplan.torchrec.compat import NotNative, describe
from fastplan.torchrec.export_tables import ExportError, module_specs, table_spec
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.cluster import read_cluster, reserve
from fastplan.torchrec.read.components import Parts, read_job
from fastplan.torchrec.read.modules import cached_sharders
from fastplan.torchrec.support import support

_POLICIES = {
    getattr(storage_reservations, name): policy
    for policy, name in POLICIES.items()
    if hasattr(storage_reservations, name)
}


def export_spec(planner: Any, module: Any, sharders: list[Any], name: str = "model") -> ModelSpec:
    """Exports the planning job of `planner` and `module` as a spec.

    A plan from the spec has the same shards and the same fingerprint.

    Args:
        planner: a fastplan.EmbeddingShardingPlanner.
        module: the model, as in `planner.plan`; it may be on the meta device.
        sharders: its sharders.
        name: the name of the model in the spec.

    Raises:
        ExportError: a custom part can't be described in a spec.
    """
    try:
        space = drafted(planner, module, sharders)
        cluster = read_cluster(reserve(planner, module, sharders, cached_sharders(sharders)))
        parts = Parts.of(planner, len(cluster.rank_hbm))
        job = read_job(planner, space, cluster, parts)
        search = _search(parts, job, deterministic=planner._fastplan.deterministic)
        expected = _key(job)
    except NotNative as why:
        raise ExportError(f"{why}; a spec can't describe this") from why
    draft = ModelSpec(
        name=name,
        batch_size=planner._batch_size,
        torchrec=_rules_version(),
        modules=module_specs(space),
        tables=tuple(
            _with_ids(
                table_spec(table.tower, origin, by_sharder=space.request.hardware is not None),
                planner._fastplan.hardware,
            )
            for table, origin in zip(space.request.tables, space.origins, strict=True)
        ),
        topology=_topology(planner),
        reservation=_reservation(planner._storage_reservation),
        search=search,
        shard_cost=_name(space.request.pricing and space.request.pricing.function),
        objective=_name(job.search.objective),
    )
    if (costs := planner._fastplan.hardware) is not None:
        draft = replace(draft, costs="hardware", pipeline=costs.pipeline)
    spec = _with_exact_numbers(draft, space.request, planner._storage_reservation)
    _check(spec, expected, cluster)
    return spec


def _with_ids(table: TableSpec, costs: Any) -> TableSpec:
    """Returns the table with the id statistics of the planner's hardware costs."""
    ids = None if costs is None else costs.statistics.get(table.name)
    if ids is None:
        return table
    from fastplan.spec.ids import fields_of

    return replace(table, ids=fields_of(ids))


def _rules_version() -> str:
    """Returns the version whose rules the spec names. Raises ExportError if none has them."""
    name = support.torchrec_name()
    if name not in VERSIONS:
        raise ExportError(
            f"a spec can have the rules of TorchRec {' or '.join(VERSIONS)}, and this is {name}: "
            "install one of these to export the model"
        )
    return name


def _name(function: Any) -> str | None:
    """Returns the name of a custom function in a spec."""
    if function is None:
        return None
    if not is_reference(function.name) or function.name.startswith("__main__:"):
        raise ExportError(f"{function.name} is not at the top level of an importable module")
    return str(function.name)


def _topology(planner: Any) -> TopologySpec:
    topology = planner._topology
    first = topology.devices[0].storage
    by_rank = {
        tier: tuple(getattr(device.storage, tier) for device in topology.devices)
        for tier in ("hbm", "ddr", "ssd")
    }
    custom = topology._custom_topology_data
    uneven = {
        f"rank_{tier}": sizes
        for tier, sizes in by_rank.items()
        if len(set(sizes)) > 1 or (custom is not None and custom.has_data(f"{tier}_cap"))
    }
    memory = {"hbm": first.hbm, "ddr": first.ddr, "ssd": first.ssd}
    hosts = {"device": topology.compute_device, "ranks_per_host": topology.local_world_size}
    costs = planner._fastplan.hardware
    hardware = (
        # Hardware costs rest on the figures of the SKU, whatever the topology says.
        replace(costs.sku, pod_size=None, **memory, **hosts)
        if costs is not None
        else Hardware(
            name="exported",
            hbm_mem_bw=float(topology.hbm_mem_bw),
            ddr_mem_bw=float(topology.ddr_mem_bw),
            ssd_mem_bw=float(topology.ssd_mem_bw),
            hbm_to_ddr_mem_bw=float(topology.hbm_to_ddr_mem_bw),
            intra_host_bw=float(topology.intra_host_bw),
            inter_host_bw=float(topology.inter_host_bw),
            pod_size=None,
            bwd_compute_multiplier=float(topology.bwd_compute_multiplier),
            weighted_feature_bwd_compute_multiplier=float(
                topology.weighted_feature_bwd_compute_multiplier
            ),
            price=None,
            sources={},
            **memory,
            **hosts,
        )
    )
    return TopologySpec(
        hardware=hardware,
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        pod_size=topology._pod_size,
        **uneven,
    )


def _reservation(reservation: Any) -> ReservationSpec:
    policy = _POLICIES.get(type(reservation))
    if policy is None:
        raise ExportError(f"{describe(reservation)} reserves memory; a spec can't describe this")
    dense = getattr(reservation, "_dense_storage", None)
    percentage = 0.0 if policy == "absolute" else getattr(reservation, "_percentage", 0.15)
    return ReservationSpec(
        policy=policy,
        percentage=percentage,
        reserved=getattr(reservation, "_hbm_reserved_bytes", 0),
        dense=0 if dense is None else dense.hbm + dense.ddr,
        margin=getattr(reservation, "_margin_bytes", 0),
        base=getattr(reservation, "_model_base_bytes", None),
        overhead=getattr(reservation, "_runtime_overhead_bytes", 0),
    )


def _search(parts: Parts, job: Job, *, deterministic: bool) -> SearchSpec:
    """Returns the search section of a spec. Raises NotNative if a spec can't describe it."""
    if parts.python:
        raise NotNative(parts.python)
    if parts.scaleup:
        raise NotNative("the scale-up proposer runs in Python")
    return SearchSpec(
        proposers=job.search.proposers,
        partitioner=job.search.partitioner,
        timeout_seconds=job.search.timeout_seconds,
        deterministic=deterministic,
    )


def _key(job: Job) -> bytes:
    """Returns the canonical request. Raises NotNative if it does not determine the plan."""
    key = key_of(job)
    unusable = job.uncacheable or key.unusable
    if unusable is not None:
        raise NotNative(unusable)
    return key.request


def _with_exact_numbers(draft: ModelSpec, request: Request, reservation: Any) -> ModelSpec:
    """Returns the draft with explicit numbers if TorchRec's rules would give other ones."""
    kjt = getattr(reservation, "_kjt_storage", None)
    job = lower(draft, trust=True)  # its functions come from the planner
    menus: dict[tuple[MenuEntry, ...], str] = {}
    tables = []
    for table, derived, actual in zip(
        draft.tables, job.request.tables, request.tables, strict=True
    ):
        exact = {
            name: value
            for name, value in actual._asdict().items()
            if name != "menu" and not _same(value, getattr(derived, name))
        }
        if "weighted" in exact:
            table = replace(table, weighted=exact.pop("weighted"))
        if "buckets" in exact:
            table = replace(table, buckets=exact.pop("buckets"))
        statistics = exact.keys() & {"expected_lookups", "miss_rate"}
        if len(statistics) == 2 and table.cache is not None:
            given = {name: exact.pop(name) for name in statistics}
            table = replace(table, cache=replace(table.cache, **given))
        menu = None
        if _entries(job.request, derived.menu) != _entries(request, actual.menu):
            entries = _entries(request, actual.menu)
            menu = menus.setdefault(entries, f"menu{len(menus)}")
        tables.append(replace(table, exact=exact, menu=menu))
    cost = {
        name: getattr(request.cost, name)
        for name in COST_FIELDS
        if getattr(request.cost, name) != getattr(job.request.cost, name)
    }
    inputs = None if kjt is None else kjt.hbm + kjt.ddr
    reserved = job.context["reservation"].get("kjt_storage", {})
    if inputs == sum(reserved.values()):
        inputs = None
    return replace(
        draft,
        tables=tuple(tables),
        menus={name: entries for entries, name in menus.items()},
        cost=cost,
        reservation=replace(draft.reservation, kjt=inputs),
    )


def _entries(request: Request, menu: int) -> tuple[MenuEntry, ...]:
    def entry(item: MenuItem) -> MenuEntry:
        weights = request.coefficients[item.coefficients]
        return MenuEntry(item.sharding_type, item.kernel, item.bandwidth, *weights)

    return tuple(entry(item) for item in request.menus[menu])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _check(spec: ModelSpec, expected: bytes, cluster: Cluster) -> None:
    try:
        job = lower(spec, trust=True)
    except CannotPlan as error:
        raise ExportError(f"the exported spec would not plan: {error}") from error
    found = key_of(job).request
    if found != expected:
        changed = "; ".join(map(str, differences(expected, found)[:5]))
        raise ExportError(f"a spec would not give the same request: {changed}")
    if job.cluster != cluster:
        raise ExportError("a spec would not give the same memory to every rank")
