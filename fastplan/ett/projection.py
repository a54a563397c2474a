"""What `fastplan ett project` prints: ETT as a function of the costs of starts and failures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastplan.ett.arithmetic import PlannerTimes, Report
from fastplan.report.terminal import Column, Style, table_lines
from fastplan.report.units import format_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """The costs of a job. Times are in seconds.

    Raises:
        ValueError: if a number is negative or not finite, or `work` is 0.
    """

    work: float  # W: all training on new data
    failures: float  # F: each is followed by another start
    start: float  # B: a start without planning, from launch or failure to training
    lost: float  # L: work lost per failure
    other: float = 0.0  # neither start nor failure nor checkpoint, such as evaluation
    save: float = 0.0  # C: training is blocked per checkpoint
    interval: float | None = None  # T: training between checkpoints; None for no checkpoints

    def __post_init__(self) -> None:
        for name in ("work", "failures", "start", "lost", "other", "save", "interval"):
            value = getattr(self, name)
            if value is None and name == "interval":
                continue
            if name == "interval" and value == 0:
                raise ValueError("`interval` must be a number of more than 0, not 0.0")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{name}` must be a number of at least 0, not {value}")
        if self.work == 0:
            raise ValueError("`work` must be more than 0: a job that does not train has no ETT")
        if self.save and self.interval is None:
            raise ValueError("`save` needs `interval`: how much training is between checkpoints")

    @property
    def saving(self) -> float:
        """The time of all checkpoints: (W + F L) / T of them, each C."""
        if self.interval is None:
            return 0.0
        return (self.work + self.failures * self.lost) / self.interval * self.save

    def seconds(self, first_plan: float, later_plan: float | None = None) -> float:
        """Returns how long the job takes.

        Args:
            first_plan: Seconds of planning in the first start.
            later_plan: The same after failures; as in the first start by default.
        """
        later = first_plan if later_plan is None else later_plan
        starts = (1 + self.failures) * self.start + first_plan + self.failures * later
        return self.work + self.other + self.saving + starts + self.failures * self.lost

    def ett(self, first_plan: float, later_plan: float | None = None) -> float:
        """Returns W / (W + S + (1 + F)(B + P) + F L).

        S is the time of checkpoints and all other time, and `later_plan` the P after failures.
        """
        return self.work / self.seconds(first_plan, later_plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plans:
    """Seconds of planning; None if not known.

    Raises:
        ValueError: if a number is negative or not finite.
    """

    full: float  # TorchRec
    loader: float | None = None  # TorchRec with a hit of its PlanLoader
    cold: float | None = None  # fastplan
    cached: float | None = None  # fastplan with a hit of its cache

    def __post_init__(self) -> None:
        for name in ("full", "loader", "cold", "cached"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{name}` must be a number of at least 0, not {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The job with one planner."""

    name: str
    first_plan: float
    later_plan: float
    ett: float
    seconds: float
    is_baseline: bool


def project(costs: Costs, plans: Plans) -> list[Projection]:
    """Returns the job with TorchRec's planners, which are the baselines, and with fastplan's."""
    cold, cached = plans.cold, plans.cached
    rows = [("TorchRec, full planning", plans.full, plans.full, True)]
    if plans.loader is not None:
        rows.append(("TorchRec, PlanLoader hit", plans.loader, plans.loader, True))
    if cold is not None:
        rows.append(("fastplan, no cache", cold, cold, False))
    if cold is not None and cached is not None:
        rows.append(("fastplan, cached later", cold, cached, False))
    if cached is not None:
        rows.append(("fastplan, cached", cached, cached, False))
    if cold is None and cached is None:
        rows.append(("fastplan, at most", 0.0, 0.0, False))
    return [
        Projection(
            name=name,
            first_plan=first,
            later_plan=later,
            ett=costs.ett(first, later),
            seconds=costs.seconds(first, later),
            is_baseline=is_baseline,
        )
        for name, first, later, is_baseline in rows
    ]


def assumptions(costs: Costs, plans: Plans) -> list[str]:
    """Returns the assumptions of a projection."""
    found = [
        "every start takes the same time without its planning, and every failure loses the same "
        "work",
        "neither depends on the time of planning, and steps take the same time: the plan is the "
        "same",
        "all ranks wait for planning, which includes sending the plan",
    ]
    if costs.other == 0 and costs.interval is None:
        found.append("the job only starts, trains and fails: no checkpoints, no evaluation")
    if costs.interval is not None:
        found.append(
            "a checkpoint is saved after every T of training, also of training that is lost later"
        )
    if plans.loader is None:
        found.append("TorchRec's PlanLoader is not shown, because the time of a hit is not given")
    else:
        found.append("TorchRec's PlanLoader hits on every start, including the first")
    if plans.cold is None and plans.cached is None:
        found.append("fastplan's time is not given, so it counts as zero: an upper bound")
    return found


def costs_of_job(report: Report) -> tuple[Costs, float]:
    """Returns the costs of a recorded job, and its seconds of planning per start.

    Raises:
        ValueError: if the job did not train.
    """
    starts = [attempt for attempt in report.attempts if attempt.to_training is not None]
    if not starts or not report.productive:
        raise ValueError(f"{report.source}: no step was recorded, so there is nothing to project")
    count = 1 + report.failures
    planning = sum(attempt.planning for attempt in report.attempts) / count
    starting = sum(sum(attempt.start.values()) for attempt in starts)
    never = sum(a.seconds for a in report.attempts if a.to_training is None)
    lost = report.lost + report.phases.get("stalled", 0.0)
    saves = report.checkpoints
    trained = report.productive + lost
    costs = Costs(
        work=report.productive,
        failures=report.failures,
        start=max(0.0, (starting + never) / count - planning),
        lost=lost / report.failures if report.failures else 0.0,
        save=saves.blocking / saves.count if saves.count else 0.0,
        interval=trained / saves.count if saves.count else None,
    )
    other = report.seconds - costs.seconds(planning)
    return replace(costs, other=max(0.0, other)), planning


def recorded_plans(report: Report) -> dict[str, float]:
    """Returns the recorded seconds per plan, by the field of Plans.

    A planner without a recorded name counts as TorchRec's.
    """
    found: dict[str, list[float]] = {}
    for attempt in report.attempts:
        if attempt.plan is not None or attempt.planning:
            found.setdefault(_planner(attempt.plan), []).append(attempt.planning)
    return {kind: sum(taken) / len(taken) for kind, taken in found.items()}


def _planner(plan: PlannerTimes | None) -> str:
    if plan is None or plan.engine in (None, "torchrec"):
        return "full"
    return "cached" if plan.cache == "hit" else "cold"


def project_text(costs: Costs, plans: Plans, style: Style | None = None) -> str:
    """Returns the projection as text.

    Args:
        costs: The costs of the job.
        plans: Seconds of planning.
        style: `Style.of(stream)` of the stream to print to.
    """
    style = style or Style()
    saving = costs.interval is not None
    lines = [
        f"ETT = W / (W + {'(W + F L) C / T + ' if saving else ''}(1 + F)(B + P) + F L)",
        f"W {format_seconds(costs.work)} of training, F {costs.failures:g} failures, "
        f"B {format_seconds(costs.start)} per start without planning, "
        f"L {format_seconds(costs.lost)} lost per failure",
    ]
    if costs.interval is not None:
        lines.append(
            f"C {format_seconds(costs.save)} blocked per checkpoint, T "
            f"{format_seconds(costs.interval)} between checkpoints: {format_seconds(costs.saving)}"
        )
    if costs.other:
        lines.append(f"and {format_seconds(costs.other)} of other time, added to the denominator")
    lines += [
        "",
        *_table(project(costs, plans), style),
        "points of ETT over full planning and over a PlanLoader hit; time saved over full planning",
        "",
        "assuming that",
    ]
    lines += [f"- {text}" for text in assumptions(costs, plans)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def project_json(costs: Costs, plans: Plans) -> dict[str, Any]:
    """Returns the projection as JSON types."""
    return {
        "costs": asdict(costs),
        "plans": asdict(plans),
        "cases": [asdict(case) for case in project(costs, plans)],
        "assumptions": assumptions(costs, plans),
    }


def _table(cases: list[Projection], style: Style) -> Iterator[str]:
    baselines = [case for case in cases if case.is_baseline]
    columns = [
        Column(""),
        Column("P first", right=True),
        Column("P later", right=True),
        Column("ETT", right=True),
        *(Column(f"over {title}", right=True) for title in ("full", "hit")[: len(baselines)]),
        Column("saved", right=True),
    ]
    rows = []
    for case in cases:
        gains = [f"{100 * (case.ett - base.ett):+.3f}" for base in baselines]
        rows.append(
            [
                case.name,
                format_seconds(case.first_plan),
                format_seconds(case.later_plan),
                f"{100 * case.ett:.3f} %",
                *(gains if not case.is_baseline else ["-"] * len(gains)),
                "-" if case.is_baseline else format_seconds(cases[0].seconds - case.seconds),
            ]
        )
    yield from table_lines(columns, rows, style)
