"""Gaps that one second proves, over several seeds."""

import statistics
from typing import Any

from bench.quality_seeds import GOAL


def goal(result: dict[str, Any]) -> str:
    """Names the instances that miss the goal."""
    over = {
        row["name"]: sum(gap > GOAL for gap in row["gaps"])
        for row in result["rows"]
        if statistics.median(row["gaps"]) > GOAL
    }
    seconds, count = result["seconds"], len(result["rows"][0]["gaps"])
    if not over:
        return f"All median gaps are within {GOAL:.0%} in {seconds:g} s."
    named = "; ".join(f"{name} ({missed} of {count} seeds)" for name, missed in over.items())
    return f"These instances miss the goal of {GOAL:.0%} in {seconds:g} s: {named}."
