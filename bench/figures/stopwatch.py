"""Blocks of docs/stopwatch.md."""

from typing import Any

from bench.figures.markdown import table
from bench.stopwatch_report import (
    MODEL_HEADER,
    ORDER_HEADER,
    model_rows,
    order_rows,
    totals,
)

Result = dict[str, Any]


def models(result: Result) -> str:
    return table(MODEL_HEADER, model_rows(result["models"]))


def order(result: Result) -> str:
    return table(ORDER_HEADER, order_rows(result["models"]))


def summary(result: Result) -> str:
    return totals(result["summary"])
