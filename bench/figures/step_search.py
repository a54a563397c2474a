"""Plans by the predicted step, compared with plans by the rating."""

from typing import Any

from bench.figures.markdown import table
from bench.step_search import TITLES, cells


def times(result: dict[str, Any]) -> str:
    """A row for each size."""
    return table(TITLES, [cells(size) for size in result["sizes"]])
