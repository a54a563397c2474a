"""The options of tables as data of a page, which computes loads of changed plans from them.

The page adds the costs of shards in the order of the plan, as the core does, so its loads are the
core's to the last bit if all tables are in the page. The others of a large model are one sum per
rank.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np

from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.report.analysis import Analysis
from fastplan.report.estimates import TIERS, EstimateUnavailable
from fastplan.report.explain import TableWhy, why_table
from fastplan.report.explain_text import advice, limits_text
from fastplan.report.options import Pair, PlanOptions
from fastplan.report.outcomes import Outcome
from fastplan.report.places import Limits
from fastplan.report.terminal import escape_name
from fastplan.report.units import format_count

# Bounds of what a page contains for a plan: what is beyond them is left out, and the page says so.
MOST_TABLES = 100
MOST_BYTES = 300_000
_BY_HOST = ("table_row_wise", "grid_shard")


def what_if_data(analysis: Analysis, plans: int = 1) -> dict[str, Any] | None:
    """Returns the options of a plan's tables for the page's script.

    Args:
        analysis: The plan.
        plans: The number of plans in the page, which share the space.

    Returns:
        The tables that cost most on the slowest rank first, as many as fit; None if the plan's
        options are not known.
    """
    basis = analysis.plan.basis
    if basis is None or analysis.costs is None:
        return None
    try:
        options = PlanOptions(basis)
    except EstimateUnavailable:
        return None
    rows = {(row.path, row.name): at for at, row in enumerate(analysis.tables)}
    numbers = basis.record.table.tolist()
    keys = [(basis.request.tables[n].path, basis.request.tables[n].name) for n in numbers]
    positions = {rows[key]: position for position, key in enumerate(keys)}
    tables: dict[int, dict[str, Any]] = {}
    left = MOST_BYTES // plans
    names = Counter(name for _, name in keys)
    for row in _order(analysis)[: MOST_TABLES // plans]:
        position = positions[row]
        path, name = keys[position]
        found = _table(options, position)
        found["key"] = f"{path}.{name}" if path and names[name] > 1 else name
        left -= len(json.dumps(found))
        if left < 0:
            break
        tables[row] = found
    order = sorted(tables, key=lambda row: positions[row])
    return {
        "order": order,
        "tables": {str(row): tables[row] for row in order},
        "rating": options.rating,
        "group": basis.cluster.group_size,
        "capacity": options.capacity.T.tolist(),
        "rest": _rest(options, {positions[row] for row in order}),
        "note": _note(analysis, len(tables)),
        "measure": "rating" if options.step is None else "step",
    }


def _note(analysis: Analysis, shown: int) -> str:
    count = len(analysis.tables)
    if shown == count:
        return ""
    return (
        f"The page has the options of {shown:,} of {format_count(count, 'table')}, those that cost "
        "most on the slowest rank. `fastplan explain` shows the others."
    )


def _order(analysis: Analysis) -> list[int]:
    """Returns tables by what they cost on the slowest rank beyond their mean, then by cost."""
    first = list(analysis.pinning)
    rest = sorted(
        set(range(len(analysis.tables))) - set(first),
        key=lambda row: (-(analysis.tables[row].cost or 0.0), row),
    )
    return first + rest


def _rest(options: PlanOptions, shown: set[int]) -> dict[str, list[Any]] | None:
    """Returns cost and bytes by rank of the tables that are not in the page; None if all are."""
    if len(shown) == len(options.chosen):
        return None
    cost = np.zeros(options.ranks)
    used = np.zeros((options.ranks, len(TIERS)), np.int64)
    for position, option in enumerate(options.chosen.tolist()):
        if position not in shown:
            shards = options.shards(option)
            np.add.at(cost, options.table_ranks(position), shards.cost)
            np.add.at(used, options.table_ranks(position), shards.memory)
    return {"cost": cost.tolist(), "used": used.T.tolist()}


def _table(options: PlanOptions, position: int) -> dict[str, Any]:
    why = why_table(options, position)
    by_pair = {options.pair(number): number for number in options.options(position)}
    shown = [own for own in why.outcomes if own.pair in by_pair]
    return {
        "limits": limits_text(why),
        "options": [_option(options, by_pair[own.pair], why, own) for own in shown],
        "forbidden": sorted(_named(own.pair) for own in why.outcomes if own.pair not in by_pair),
    }


def _named(pair: Pair) -> str:
    return escape_name(f"{pair.sharding_type} {pair.kernel}".replace("_", " "))


def _option(options: PlanOptions, number: int, why: TableWhy, outcome: Outcome) -> dict[str, Any]:
    runs = options.runs(number)
    kind = outcome.pair.sharding_type
    ranks = outcome.ranks
    if ranks is None:  # where least memory lacks
        loads = options.without(why.position)
        place = options.best(why.position, number, loads, Limits("lack", lack=math.inf))
        ranks = () if place is None else tuple(place.ranks.tolist())
    return {
        "type": kind,
        "kernel": outcome.pair.kernel,
        "status": outcome.status,
        "why": advice(why, outcome),
        "value": why.value_of(outcome),
        # Each run: how many shards, milliseconds, and bytes of hbm, ddr and ssd.
        "runs": [
            [int(count), float(cost), *memory.tolist()]
            for count, cost, memory in zip(
                options.space.run_count[runs],
                options.run_cost[runs],
                options.run_memory[runs],
                strict=True,
            )
        ],
        "ranks": None if kind in UNIFORM_TYPES else [int(rank) for rank in ranks],
        "place": "all" if kind in UNIFORM_TYPES else "host" if kind in _BY_HOST else "rank",
        "one_host": kind == "table_column_wise",
    }
