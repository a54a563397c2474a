"""Profiles of ids: time, memory and errors."""

from typing import Any

from bench.figures.markdown import table
from bench.profile import ERROR_TITLES, RUN_TITLES, error_cells, run_cells


def runs(result: dict[str, Any]) -> str:
    """A row for each number of processes."""
    return table(list(RUN_TITLES), [run_cells(run) for run in result["runs"]])


def errors(result: dict[str, Any]) -> str:
    """A row for each stream."""
    return table(list(ERROR_TITLES), [error_cells(error) for error in result["errors"]])
