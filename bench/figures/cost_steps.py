"""Predicted embedding steps against measured whole steps."""

from typing import Any

from bench.cost_steps import TITLES, cells
from bench.figures.markdown import table


def steps(result: dict[str, Any]) -> str:
    """A row for each model, SKU and number of ranks."""
    return table(list(TITLES), [cells(step) for step in result["steps"]])
