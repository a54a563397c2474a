"""How well the hardware costs estimate published times."""

from typing import Any

from bench.costs import ESTIMATES, TITLES, cell
from bench.figures.markdown import table


def accuracy(result: dict[str, Any]) -> str:
    """Median and 90th percentile of each row."""
    rows = [
        [row["name"], str(row["n"]), *(cell(row, each, ("median", "p90")) for each in ESTIMATES)]
        for row in result["rows"]
    ]
    return table(["times", "n", *TITLES], rows)
