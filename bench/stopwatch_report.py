"""What the stopwatch says: speed-ups with their spread, the order of plans, and what is slower."""

import statistics
from typing import Any

import numpy as np

from bench.stopwatch_plans import CALIBRATED, DEFAULT, MODELS, RATING, STEP
from bench.text import duration, table, verdicts
from fastplan.measure.paired import Paired, compare_rounds
from fastplan.measure.statistics import kendall_tau

AGAINST = (DEFAULT, CALIBRATED, RATING)
ENOUGH_MODELS = 11 / 12  # in which the plan for the step is at least as fast as the default
GOAL_SPEED_UP, GOAL_TAU, GOAL_BETTER_ORDERS = 1.25, 0.75, 10 / 12


def summary(models: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of all models together."""
    ours = [compared(model, DEFAULT) for model in models]
    taus = {name: [tau(model, name) for model in models] for name in MODELS}
    speed_ups = {
        name: statistics.geometric_mean(speed_up(model, name) for model in models)
        for name in AGAINST
    }
    better = sum(a > b for a, b in zip(taus["hardware"], taus["torchrec"], strict=True))
    medians = {name: statistics.median(found) for name, found in taus.items()}
    not_slower = sum(found.outcome != "slower" for found in ours)
    n = len(models)
    return {
        "models": n,
        "speed_up": speed_ups,
        "outcomes": {
            name: sum(found.outcome == name for found in ours)
            for name in ("faster", "same", "unclear", "slower")
        },
        "slower_medians": sum(speed_up(model, DEFAULT) < 1 for model in models),
        "tau": medians,
        "better_orders": better,
        "checks": {
            "the plan for the step is not slower than the default": not_slower >= ENOUGH_MODELS * n,
            f"its geometric mean is at least {GOAL_SPEED_UP:g}": speed_ups[DEFAULT]
            >= GOAL_SPEED_UP,
            f"the median tau of the hardware costs is at least {GOAL_TAU:g}": medians["hardware"]
            >= GOAL_TAU,
            "it is above that of TorchRec's constants in 10 of 12": better
            >= GOAL_BETTER_ORDERS * n,
        },
    }


def _plan(model: dict[str, Any], name: str) -> dict[str, Any]:
    return next(plan for plan in model["plans"] if plan["name"] == name)


def _steps(plan: dict[str, Any]) -> list[Any]:
    return [np.array(each) for each in plan["steps"]]


def step(plan: dict[str, Any]) -> float:
    """Returns the median seconds of a plan's step."""
    return float(np.median(np.concatenate(_steps(plan))))


def speed_up(model: dict[str, Any], against: str) -> float:
    """Returns how many times as fast the plan for the step is, by the medians."""
    return step(_plan(model, against)) / step(_plan(model, STEP))


def compared(model: dict[str, Any], against: str) -> Paired:
    """Returns how the plan for the step compares with another one."""
    one, other = _plan(model, against), _plan(model, STEP)
    return compare_rounds(_steps(one), _steps(other))


def tau(model: dict[str, Any], costs: str) -> float:
    """Returns Kendall's tau of a cost model and the stopwatch over the distinct plans."""
    plans = {plan["layout"]: plan for plan in model["plans"]}.values()
    return kendall_tau([plan["predicted"][costs] for plan in plans], [step(p) for p in plans])


def failed(result: dict[str, Any]) -> bool:
    return not all(result["summary"]["checks"].values())


def model_rows(models: list[dict[str, Any]]) -> list[list[str]]:
    """Returns a row for each model: steps with the quartiles' distance, and the speed-up."""
    rows = []
    for model in models:
        found = compared(model, DEFAULT)
        rows.append(
            [
                model["name"],
                *(_with_spread(_plan(model, name)) for name in (*AGAINST, STEP)),
                f"{speed_up(model, DEFAULT):.2f}",
                found.outcome,
                str(found.rounds),
            ]
        )
    return rows


MODEL_HEADER = ["model", *AGAINST, STEP, "speed-up", "paired test", "n"]


def _with_spread(plan: dict[str, Any]) -> str:
    low, high = np.percentile(np.concatenate(_steps(plan)), [25, 75])
    return f"{duration(step(plan))} ({duration(float(high - low))})"


def order_rows(models: list[dict[str, Any]]) -> list[list[str]]:
    """Returns a row for each model: the number of distinct plans, and tau of each cost model."""
    return [
        [
            model["name"],
            str(len({plan["layout"] for plan in model["plans"]})),
            *(f"{tau(model, name):.2f}" for name in MODELS),
        ]
        for model in models
    ]


ORDER_HEADER = ["model", "plans", "TorchRec's constants", "TorchRec calibrated", "hardware costs"]


def totals(found: dict[str, Any]) -> str:
    """Returns the figures of all models as sentences."""
    gains = ", ".join(f"{value:.2f} against {name}" for name, value in found["speed_up"].items())
    outcomes = ", ".join(f"{count} {name}" for name, count in found["outcomes"].items() if count)
    taus = ", ".join(f"{name} {value:.2f}" for name, value in found["tau"].items())
    checks = verdicts(found["checks"], "; ")
    return (
        f"n = {found['models']} models. Geometric mean of the speed-ups of the plan for the step: "
        f"{gains}. Paired tests against TorchRec's default: {outcomes}. Median tau: {taus}; the "
        f"hardware costs order better than TorchRec's constants in {found['better_orders']}. "
        f"Goals: {checks}."
    )


def report(result: dict[str, Any]) -> str:
    """Returns everything as text."""
    models = result["models"]
    return "\n\n".join(
        (
            table(MODEL_HEADER, model_rows(models)),
            table(ORDER_HEADER, order_rows(models)),
            totals(result["summary"]),
        )
    )
