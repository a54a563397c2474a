"""Estimated and measured times of plans."""

from typing import Any

from bench.figures.markdown import table
from bench.text import duration, verdicts
from fastplan.measure.settings import NAMES
from fastplan.measure.statistics import Interval
from fastplan.measure.text import format_factor, format_interval

SIDES = ("before", "after")


def plans(result: dict[str, Any]) -> str:
    calibrated = {plan["label"]: plan["estimated"] for plan in result["after"]["plans"]}
    rows = [
        [
            plan["label"],
            duration(plan["measured"]),
            duration(plan["spread"]),
            duration(plan["estimated"] / 1000),
            duration(calibrated[plan["label"]] / 1000),
        ]
        for plan in result["before"]["plans"]
    ]
    return table(["plan", "measured", "spread", "TorchRec's constants", "calibrated"], rows)


def order(result: dict[str, Any]) -> str:
    found = [result[side] for side in SIDES]
    pairs = [each["pairs"] for each in found]
    rows = [
        ["Kendall's tau", *(format_interval(Interval(**each["tau"])) for each in found)],
        [
            "pairs that differ by more than noise, in the right order",
            *(f"{each['agreeing']} of {each['clear']}" for each in pairs),
        ],
    ]
    for parts in zip(*(each["parts"] for each in found), strict=True):
        factors = [part["factor"] for part in parts]
        name = NAMES[parts[0]["part"]]
        rows.append([name, *("-" if each is None else format_factor(each) for each in factors)])
    rows[2][0] += ", measured / estimated"
    return table(["", "TorchRec's constants", "calibrated"], rows)


def checks(result: dict[str, Any]) -> str:
    return f"Checks of this run: {verdicts(result['checks'], '; ')}."
