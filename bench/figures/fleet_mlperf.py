"""The share of initialisation in MLPerf's runs."""

from typing import Any

from bench.figures.markdown import table
from bench.fleet_mlperf import TITLES, by, size


def sizes(result: dict[str, Any]) -> str:
    """By round and size, the smallest first."""
    ordered = {
        **result,
        "systems": sorted(result["systems"], key=lambda cell: (cell["round"], cell["hosts"])),
    }
    rows = by(ordered, lambda cell: f"{cell['round']}, {size(cell)}")
    return table(["round and size", *TITLES], rows)


def vendors(result: dict[str, Any]) -> str:
    """By submitter."""
    ordered = {**result, "systems": sorted(result["systems"], key=lambda cell: cell["vendor"])}
    return table(["submitter", *TITLES], by(ordered, lambda cell: str(cell["vendor"])))
