"""Reads of a large fleet, and queries."""

from typing import Any

from bench.figures.markdown import table
from bench.fleet import TITLES, rows


def reads(result: dict[str, Any]) -> str:
    """A row per command and query, and the size of the fleet."""
    most = max(took["memory_bytes"] for took in result["commands"].values())
    return (
        f"{table(TITLES[:-1], [row[:-1] for row in rows(result)])}\n\n"
        f"{result['files']:,} files with {result['bytes'] / 1e9:.2f} GB, n = 1, on "
        f"{result['cpu_count']} cores without other work, with files that the system has "
        "read before.\n"
        f"The database has {result['database_bytes'] / 1e6:.1f} MB, and all processes together "
        f"used at most {most / 1e6:.0f} MB of memory."
    )
