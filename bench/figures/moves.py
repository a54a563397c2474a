"""Estimated and measured times of moves."""

from typing import Any

from bench.figures.markdown import table
from bench.moves import HEADER, rows_of


def cases(result: dict[str, Any]) -> str:
    return table(HEADER, rows_of(result))
