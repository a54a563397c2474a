"""Why a plan is as it is: the options of a table and why each one lost, and what limits a plan.

"Only this table changed" is the meaning of every figure here: the other tables keep their options
and their ranks, and the table is placed as well as possible among them. `replanned` is the other
question: TorchRec's search for all tables, with only one option allowed to one table.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from fastplan.cache.fingerprint import parse_search
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from fastplan.engine.step import step_of
from fastplan.model.plan import Basis, Plan
from fastplan.model.request import MenuItem, Request, Table
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from fastplan.report.options import Changed, Pair, PlanOptions, is_same, missing_pairs
from fastplan.report.outcomes import Judge, Outcome

_NAMES = 3  # near names in an error


class NoSuchTable(ValueError):
    """The plan has no table of that name, or several. The message names the nearest."""


class MissingRequest(ValueError):
    """The plan can't be explained. The message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWhy:
    """Why a table has its option."""

    table: Table
    position: int  # in the record of the plan
    ranks: int  # of the plan
    planned_ranks: tuple[int, ...]
    measure: Literal["rating", "step"]
    value: float  # of the plan, by the measure
    without: float  # of the plan if the table cost nothing
    elsewhere: Changed | None  # the same option on better ranks, if there are any
    outcomes: tuple[Outcome, ...]  # the planned one first, then the others as the request has them

    @property
    def limits(self) -> bool:
        """Whether the plan would be better if the table cost nothing."""
        return self.without < self.value and not is_same(self.without, self.value)

    def value_of(self, outcome: Outcome) -> float | None:
        """Returns rating or step of the plan with an option, if there is such a plan."""
        return outcome.rating if self.measure == "rating" else outcome.step

    def wins(self, value: float) -> bool:
        """Whether a rating or step is better than the plan's, by more than rounding."""
        return value < self.value and not is_same(value, self.value)

    @property
    def planned(self) -> Outcome:
        """The option that the plan has."""
        return self.outcomes[0]


def basis_of(plan: Plan) -> Basis:
    """Returns the basis of a plan.

    Raises:
        MissingRequest: The plan has none.
    """
    if plan.basis is None:
        raise MissingRequest(
            "the plan has no request, which has the options and costs of its tables: write it with "
            "`fastplan plan -o`, or with `fastplan.save_plan(..., planner=planner)`"
        )
    return plan.basis


def find_table(plan: Plan, name: str) -> int:
    """Returns the position of a table in the record of a plan.

    Args:
        plan: The plan.
        name: The table's name, with its module path and a dot before it if several have that name.

    Raises:
        NoSuchTable: No table or several have that name.
        MissingRequest: The plan has no request.
    """
    basis = basis_of(plan)
    tables = [basis.request.tables[number] for number in basis.record.table.tolist()]
    full = [f"{table.path}.{table.name}" if table.path else table.name for table in tables]
    found = [i for i, own in enumerate(full) if own == name]
    found = found or [i for i, table in enumerate(tables) if table.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(full[i] for i in found[:_NAMES])
        raise NoSuchTable(f"several tables are named {name}: give one as {several}")
    near = get_close_matches(name, [*(table.name for table in tables), *full], n=_NAMES, cutoff=0.4)
    known = list(dict.fromkeys(near)) or [table.name for table in tables[:_NAMES]]
    rest = "did you mean" if near else "its tables are"
    more = "" if near or len(tables) <= _NAMES else f" and {len(tables) - _NAMES} more"
    raise NoSuchTable(
        f"the plan has no table {name}; {rest} {', '.join(known)}{more}{'?' if near else ''}"
    )


def explain_table(plan: Plan, name: str, *, replan: bool = False) -> TableWhy:
    """Explains why a table has its option.

    Args:
        plan: The plan, with its request.
        name: The table.
        replan: Whether to also run TorchRec's search once for each option.

    Raises:
        NoSuchTable: No table or several have that name.
        MissingRequest: The plan has no request, or the search is not known.
        EstimateUnavailable: The plan's costs can't be estimated.
    """
    position = find_table(plan, name)
    options = PlanOptions(basis_of(plan), extra=position)
    why = why_table(options, position)
    if not replan:
        return why
    return replace(why, outcomes=tuple(_replanned(plan, position, own) for own in why.outcomes))


def why_table(options: PlanOptions, position: int) -> TableWhy:
    """Explains why a table has its option, with options that are estimated already."""
    loads = options.without(position)
    judge = Judge(options, position, loads)
    own = [*options.options(position)]
    chosen = int(options.chosen[position])
    lent = {(item.sharding_type, item.kernel) for item in options.lent}
    outcomes = [judge.planned(chosen)]
    outcomes += [judge.outcome(n) for n in own if n != chosen and options.pair(n) not in lent]
    number = int(options.basis.record.table[position])
    by_pair = {options.pair(n): n for n in own if options.pair(n) in lent}
    for pair, modules in missing_pairs(options.basis.request, number).items():
        found = Outcome(pair=pair, status="not allowed", parts={}, memory={})
        if pair in by_pair:
            found = replace(judge.outcome(by_pair[pair]), status="not allowed")
        outcomes.append(replace(found, modules=tuple(sorted(modules))))
    return TableWhy(
        table=options.request.tables[position],
        position=position,
        ranks=options.ranks,
        planned_ranks=tuple(options.table_ranks(position).tolist()),
        measure="rating" if options.step is None else "step",
        value=options.value,
        without=judge.without,
        elsewhere=judge.elsewhere(chosen),
        outcomes=(outcomes[0], *sorted(outcomes[1:], key=_rank)),
    )


def _rank(outcome: Outcome) -> tuple[bool, float, int, int]:
    """Allowed options first, the best ones first, and simple ones before those that cost the same.

    Costs that differ by rounding only are the same.
    """
    value = outcome.rating if outcome.step is None else outcome.step
    kind, kernel = outcome.pair
    order = SHARDING_TYPE_INDEX[kind], KERNEL_INDEX[kernel]
    short = math.inf if value is None else float(f"{value:.9g}")
    return outcome.status == "not allowed", short, *order


def _replanned(plan: Plan, position: int, outcome: Outcome) -> Outcome:
    """Returns the outcome with the value of TorchRec's search for all tables."""
    basis = basis_of(plan)
    if not basis.canonical:
        raise MissingRequest("the plan has no search settings: it was estimated again")
    number = int(basis.record.table[position])
    item = _item(basis.request, number, outcome.pair)
    if item is None:
        return outcome
    request = basis.request
    tables = list(request.tables)
    tables[number] = tables[number].with_menu(len(request.menus))
    asked = replace(request, tables=tuple(tables), menus=(*request.menus, (item,)))
    problem = Problem(estimate(asked), basis.cluster)
    solution = solve(problem, parse_search(json.loads(basis.canonical)))
    value = math.inf
    if solution.found:
        value = solution.rating
        if request.hardware is not None:
            value = step_of(problem, solution.options, solution.ranks).ms
    return replace(outcome, replanned=value)


def _item(request: Request, number: int, pair: Pair) -> MenuItem | None:
    """Returns a table's option; None if the table does not have it."""
    for item in request.menus[request.tables[number].menu]:
        if (item.sharding_type, item.kernel) == pair:
            return item
    return None
