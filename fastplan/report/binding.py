"""What binds a plan: its slowest rank, the tables there, memory, and what tables may not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastplan.model.plan import Plan
from fastplan.report.analysis import Analysis, analyse
from fastplan.report.estimates import EstimateUnavailable
from fastplan.report.explain import TableWhy, basis_of, why_table
from fastplan.report.options import PlanOptions
from fastplan.report.outcomes import Outcome

# Tables that are looked at: those that pin the slowest rank most.
MOST_TABLES = 10

By = Literal["option", "place", "memory", "constraint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """A change of one table after which the plan is better."""

    table: TableWhy
    outcome: Outcome  # the option; the planned one if only its ranks change
    by: By  # what has to change: an option, the ranks, memory, or what the table may do
    ranks: tuple[int, ...] | None
    value: float  # rating or step with it


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWhy:
    """What binds a plan."""

    analysis: Analysis
    tables: tuple[TableWhy, ...]  # those that pin the slowest rank most
    helps: tuple[Help, ...]  # changes of one of these tables that make the plan better, best first
    others: int  # tables on that rank that were not looked at

    @property
    def binds(self) -> tuple[str, ...]:
        """What binds: `memory` and `constraint` if more of it would help, else the `rank`."""
        found = {own.by for own in self.helps} & {"memory", "constraint"}
        return tuple(sorted(found)) or ("rank",)


def explain_model(plan: Plan) -> ModelWhy:
    """Explains what binds a plan.

    Args:
        plan: The plan, with its request.

    Raises:
        MissingRequest: The plan has no request.
        EstimateUnavailable: The plan's costs can't be estimated.
    """
    basis = basis_of(plan)
    analysis = analyse(plan)
    if analysis.costs is None:
        raise EstimateUnavailable(analysis.assumptions[0].removeprefix("costs are not shown: "))
    positions = {
        (basis.request.tables[number].path, basis.request.tables[number].name): position
        for position, number in enumerate(basis.record.table.tolist())
    }
    tables = []
    for index in analysis.pinning[:MOST_TABLES]:
        row = analysis.tables[index]
        position = positions[row.path, row.name]
        tables.append(why_table(PlanOptions(basis, extra=position), position))
    return ModelWhy(
        analysis=analysis,
        tables=tuple(tables),
        helps=tuple(sorted(_helps(tables), key=lambda own: own.value)),
        others=max(0, len(analysis.pinning) - MOST_TABLES),
    )


def _helps(tables: list[TableWhy]) -> list[Help]:
    """Returns the best change of each table and each kind."""
    found: dict[tuple[int, By], Help] = {}
    for table in tables:
        for own in helps_of(table):
            key = table.position, own.by
            if key not in found or _first(own) < _first(found[key]):
                found[key] = own
    return list(found.values())


def _first(help: Help) -> tuple[float, float]:
    """Returns what the best change of a kind has least of: memory, then cost."""
    roomy = help.outcome.roomy if help.by == "memory" else None
    return 0.0 if roomy is None else roomy.more, help.value


def helps_of(table: TableWhy) -> list[Help]:
    """Returns all changes of a table after which the plan is better."""

    def made(outcome: Outcome, by: By, ranks: tuple[int, ...] | None, value: float) -> Help:
        return Help(table=table, outcome=outcome, by=by, ranks=ranks, value=value)

    found = []
    if table.elsewhere is not None:
        ranks = tuple(table.elsewhere.place.ranks.tolist())
        found.append(made(table.planned, "place", ranks, table.elsewhere.value))
    for own in table.outcomes[1:]:
        value = table.value_of(own)
        if own.status == "better" and value is not None:
            found.append(made(own, "option", own.ranks, value))
        elif own.status == "not allowed" and value is not None:
            found.append(made(own, "constraint", own.ranks, value))
        elif own.status == "does not fit" and own.roomy is not None:
            found.append(made(own, "memory", None, own.roomy.value))
    return [own for own in found if table.wins(own.value)]
