"""Whether two plans are about the same thing."""

from __future__ import annotations

import re

from fastplan.cache.why_miss import Difference, differences
from fastplan.model.plan import Basis, Plan
from fastplan.report.names import table_name, visible
from fastplan.report.units import of_count

# Free memory differs a little between hosts that are alike.
_CAPACITY_TOLERANCE = 0.01
# How a plan was looked for. Everything else is the model, its load or the cluster.
_SETTINGS = re.compile(
    r"plan_version|search\b.*|context\.(?!local_world_size|group_size).*", re.DOTALL
)


def different_subjects(before: Plan, after: Plan) -> tuple[list[str], list[str]]:
    """What differs in model and cluster, and what else in how the plans were made; in words."""
    if before.basis is None or after.basis is None:
        return _bare(before, after), []
    subjects, settings, options = [], [], 0
    for change in differences(before.basis.canonical, after.basis.canonical):
        if change.field.startswith("tables[") and change.field.endswith("].options"):
            options += 1
        elif _SETTINGS.fullmatch(change.field) or _unused(change):
            settings.append(visible(str(change)))
        else:
            subjects.append(visible(str(change)))
    if options:
        settings.append(f"other options for {of_count(options, 'table')}")
    # What follows from other fields comes last.
    subjects.sort(key=lambda words: words.startswith("cost."))
    # A reservation that changed explains why less or more memory is left.
    reserved = any(words.startswith("context.reservation") for words in settings)
    (settings if reserved else subjects).extend(_capacities(before.basis, after.basis))
    return subjects, settings


def _unused(change: Difference) -> bool:
    """A bandwidth that one of the plans has no use for, since its types use no such collective."""
    return change.field.startswith("cost.bw_") and 0.0 in (change.old, change.new)


def _capacities(before: Basis, after: Basis) -> list[str]:
    found = []
    for tier in ("rank_hbm", "rank_ddr", "rank_ssd"):
        old, new = getattr(before.cluster, tier), getattr(after.cluster, tier)
        for rank, (a, b) in enumerate(zip(old, new, strict=False)):
            if abs(a - b) > _CAPACITY_TOLERANCE * max(a, b):
                found.append(f"{tier}[{rank}]: {a} -> {b} bytes")
                break
    return found


def _bare(before: Plan, after: Plan) -> list[str]:
    """Tables and shapes; ranks that one plan leaves empty can't be told from ranks it lacks."""
    old = {table_name(table.path, table.name): table.shape for table in before.layout.tables}
    new = {table_name(table.path, table.name): table.shape for table in after.layout.tables}
    found = [f"table {visible(name)} is missing" for name in old if name not in new]
    found += [f"table {visible(name)} is new" for name in new if name not in old]
    for name, shape in old.items():
        other = new.get(name)
        if shape is not None and other is not None and shape != other:
            found.append(f"table {visible(name)} has shape {other}, not {shape}")
    sizes = before.layout.ranks_per_host, after.layout.ranks_per_host
    if None not in sizes and sizes[0] != sizes[1]:
        found.append(f"hosts have {sizes[1]} ranks, not {sizes[0]}")
    if before.ranks != after.ranks and _fills(before) and _fills(after):
        found.append(f"there are {after.ranks} ranks, not {before.ranks}")
    return found


def _fills(plan: Plan) -> bool:
    """Whether the number of ranks is known: from the request, or by tables that are on all."""
    uniform = ("data_parallel", "row_wise")
    return plan.basis is not None or any(
        table.sharding_type in uniform for table in plan.layout.tables
    )
