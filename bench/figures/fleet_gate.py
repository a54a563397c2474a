"""How well the gate finds regressions."""

from typing import Any

from bench.figures.markdown import table
from bench.fleet_gate import rows


def found(result: dict[str, Any]) -> str:
    """A row per spread and number of jobs."""
    titles = ["spread of Time to Start", "jobs on each side", "regressions of 5 % found"]
    return table([*titles, "false alarms"], rows(result))
