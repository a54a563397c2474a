"""What `fastplan plan --replica-groups` prints about replica groups, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastplan.planning.replicas import Candidate, Replication
from fastplan.planning.sync import Sync
from fastplan.report.terminal import Column, Style, table_lines
from fastplan.report.units import format_bytes, format_count, format_milliseconds

_LABEL = 9
_FEW = 4
_TIERS = ("hbm", "ddr", "ssd")


def replication_lines(found: Replication, style: Style) -> Iterator[str]:
    """Yields the lines about replica groups, below those about the plan of one group."""
    groups = found.groups
    size = format_count(groups.group_size, "rank")
    if groups.groups == 1:
        text = f"one copy on {size}: without replicas, DistributedModelParallel does"
        yield from style.labelled("groups", _LABEL, text, "bold")
    else:
        text = f"{groups.groups:,} copies, each on {size}"
        yield from style.labelled("groups", _LABEL, text, "bold")
        yield from _group_lines(found, style)
    if len(found.candidates) > 1:
        yield ""
        yield from candidate_lines(found, style)


def _group_lines(found: Replication, style: Style) -> Iterator[str]:
    groups = found.groups
    for name, ranks in (
        ("group 0", groups.ranks_of(0)),
        ("group 1", groups.ranks_of(1)),
        ("replicas", groups.replicas_at(0)),
    ):
        yield from style.labelled(name, _LABEL, f"ranks {_listed(ranks)}")
    if found.sync is not None:
        yield from style.labelled("sync", _LABEL, _sync_text(found.sync))
        yield from style.labelled("step", _LABEL, _step_text(found), "bold")
    given = ", ".join(f"{name}={value!r}" for name, value in found.arguments.items())
    yield from style.labelled("use", _LABEL, f"DMPCollection(..., {given})")


def _listed(ranks: range) -> str:
    if len(ranks) > _FEW and ranks.step == 1:
        return f"{ranks[0]}-{ranks[-1]}"
    shown = ", ".join(map(str, ranks[:_FEW]))
    return shown if len(ranks) <= _FEW else f"{shown}, ..., {ranks[-1]}"


def _sync_text(sync: Sync) -> str:
    worst = sync.worst_position
    weights, states = (int(each[worst]) for each in (sync.bytes.weights, sync.bytes.states))
    where = f"{sync.near} replicas on a host" if sync.near > 1 else "one replica on a host"
    if sync.far > 1:
        where += f", {sync.far} hosts"
    text = (
        f"{format_milliseconds(sync.total_ms)} est.: {format_bytes(weights)} of weights and "
        f"{format_bytes(states)} of optimizer states on rank {worst} of a group, the slowest; "
        f"{where}"
    )
    if host := int(sync.bytes.in_host_memory[worst]):
        text += f"; {format_bytes(host)} in host memory"
    return text


def _step_text(found: Replication) -> str:
    chosen, interval = found.chosen, found.settings.sync_interval
    assert chosen.step_ms is not None
    assert chosen.rating is not None
    often = "every step" if interval == 1 else f"every {interval:,} steps"
    return (
        f"{format_milliseconds(chosen.step_ms)} est.: rating "
        f"{format_milliseconds(chosen.rating)}, and a sync {often}"
    )


def candidate_lines(found: Replication, style: Style) -> Iterator[str]:
    """Yields the table of all numbers of replica groups that were tried."""
    tiers = [
        tier for tier in _TIERS if any(tier in (each.memory or {}) for each in found.candidates)
    ]
    columns = [
        *(Column(title, True) for title in ("groups", "ranks", "on a host")),
        Column("fits", False),
        *(Column(title, True) for title in ("rating", "sync", "step")),
        *(Column(f"{tier.upper()} of the fullest", True) for tier in tiers),
        Column("", False),
    ]
    rows = [
        _cells(each, tiers, "chosen" if each == found.chosen else "") for each in found.candidates
    ]
    yield from table_lines(columns, rows, style)


def _cells(candidate: Candidate, tiers: list[str], note: str) -> list[str]:
    groups = candidate.groups
    times = [candidate.rating, candidate.sync_ms, candidate.step_ms]
    cells = [f"{groups.groups:,}", f"{groups.group_size:,}", f"{groups.local_world_size}"]
    cells.append("no" if candidate.step_ms is None else "yes")
    cells += ["-" if each is None else format_milliseconds(each) for each in times]
    for tier in tiers:
        used = (candidate.memory or {}).get(tier)
        cells.append("-" if used is None else f"{format_bytes(used[0])} of {format_bytes(used[1])}")
    return [*cells, note]


def replication_json(found: Replication) -> dict[str, Any]:
    """Returns replica groups as JSON types, in milliseconds and bytes; None is unknown.

    Keys: `groups`, `arguments` (of DMPCollection), `local_world_size`, `sync_interval`, `step_ms`;
    `sync` (lists by rank of a group: `weights`, `optimizer_states`, `in_host_memory`, `ms`; and
    `total_ms`, `near_replicas`, `hosts`); `not_synced` (reasons by table); `candidates`.
    """
    groups, sync = found.groups, found.sync
    return {
        "groups": groups.groups,
        "arguments": found.arguments,
        "local_world_size": groups.local_world_size,
        "sync_interval": found.settings.sync_interval,
        "step_ms": found.chosen.step_ms,
        "sync": None
        if sync is None
        else {
            "weights": sync.bytes.weights.tolist(),
            "optimizer_states": sync.bytes.states.tolist(),
            "in_host_memory": sync.bytes.in_host_memory.tolist(),
            "ms": sync.ms.tolist(),
            "total_ms": sync.total_ms,
            "near_replicas": sync.near,
            "hosts": sync.far,
        },
        "not_synced": dict(found.not_synced),
        "candidates": [_candidate_json(each) for each in found.candidates],
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    groups = candidate.groups
    memory = candidate.memory
    return {
        "groups": groups.groups,
        "ranks": groups.group_size,
        "local_world_size": groups.local_world_size,
        "fits": candidate.step_ms is not None,
        "rating": candidate.rating,
        "sync_ms": candidate.sync_ms,
        "step_ms": candidate.step_ms,
        "memory": None
        if memory is None
        else {tier: {"used": used, "capacity": most} for tier, (used, most) in memory.items()},
        "reason": candidate.reason,
    }
