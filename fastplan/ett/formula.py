"""What a job would gain: ETT as a function of what a start and a failure cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fastplan.ett.arithmetic import Planning, Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """A job in five numbers; times are seconds."""

    work: float  # W: training on new data, all of it
    failures: float  # F: each of which is followed by another start
    start: float  # B: a start without its planning, from launch or failure to training
    lost: float  # L: work that a failure destroys
    other: float = 0.0  # neither start nor failure: checkpoints, evaluation

    def __post_init__(self) -> None:
        for name in ("work", "failures", "start", "lost", "other"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{name}` must be a number of at least 0, not {value}")
        if self.work == 0:
            raise ValueError("`work` must be more than 0: a job that does not train has no ETT")

    def seconds(self, first_plan: float, later_plan: float | None = None) -> float:
        """How long the job takes if planning takes this long, after failures and before."""
        later = first_plan if later_plan is None else later_plan
        starts = (1 + self.failures) * self.start + first_plan + self.failures * later
        return self.work + self.other + starts + self.failures * self.lost

    def ett(self, first_plan: float, later_plan: float | None = None) -> float:
        """W / (W + (1 + F)(B + P) + F L), with another P after failures if there is one."""
        return self.work / self.seconds(first_plan, later_plan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plans:
    """Seconds that a plan takes; None is not known."""

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
class Case:
    """The job with one way of planning."""

    name: str
    first_plan: float
    later_plan: float
    ett: float
    seconds: float
    is_baseline: bool


def project(costs: Costs, plans: Plans) -> list[Case]:
    """The job with TorchRec's planning and with fastplan's, baselines first."""
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
        Case(
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
    """What a projection takes for granted."""
    found = [
        "every start costs the same besides its planning, and every failure destroys the same work",
        "neither depends on how long planning takes, and steps take as long: the plan is the same",
        "planning is what all ranks wait for: making the plan and giving it to them",
    ]
    if costs.other == 0:
        found.append(
            "the job does nothing but start, train and fail: no checkpoints, no evaluation"
        )
    if plans.loader is None:
        found.append("TorchRec's PlanLoader is left out, since what its hit takes is not given")
    else:
        found.append("TorchRec's PlanLoader hits on every start, on the first one, too")
    if plans.cold is None and plans.cached is None:
        found.append("fastplan takes no time at all, since that is not given: an upper bound")
    return found


def measured(report: Report) -> tuple[Costs, float]:
    """A recorded job in numbers, and what planning took per start.

    Raises ValueError if it never trained.
    """
    starts = [attempt for attempt in report.attempts if attempt.to_training is not None]
    if not starts or not report.productive:
        raise ValueError(f"{report.source}: no step was recorded, so there is nothing to project")
    count = 1 + report.failures
    planning = sum(attempt.planning for attempt in report.attempts) / count
    starting = sum(sum(attempt.start.values()) for attempt in starts)
    never = sum(a.seconds for a in report.attempts if a.to_training is None)
    lost = report.lost + report.phases.get("stalled", 0.0)
    costs = Costs(
        work=report.productive,
        failures=report.failures,
        start=max(0.0, (starting + never) / count - planning),
        lost=lost / report.failures if report.failures else 0.0,
    )
    other = report.seconds - costs.seconds(planning)
    return replace(costs, other=max(0.0, other)), planning


def recorded_plans(report: Report) -> dict[str, float]:
    """Seconds per plan as the job recorded them, by the field of Plans that they are.

    A planner that the record does not name, as in a phase of the user's own, counts as TorchRec's.
    """
    found: dict[str, list[float]] = {}
    for attempt in report.attempts:
        if attempt.plan is not None or attempt.planning:
            found.setdefault(_planner(attempt.plan), []).append(attempt.planning)
    return {kind: sum(taken) / len(taken) for kind, taken in found.items()}


def _planner(plan: Planning | None) -> str:
    if plan is None or plan.engine in (None, "torchrec"):
        return "full"
    return "cached" if plan.cache == "hit" else "cold"
