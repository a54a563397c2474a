"""The files of a sweep's plans: a plan file and a page for each cell, beside the sweep's page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastplan.files.storage import replace_file
from fastplan.sweep.sweep import Cell

if TYPE_CHECKING:
    from fastplan.planning.search import Result


def folder_beside(page: str) -> str:
    """Returns the folder for the plans of a sweep's page: `NAME_plans` next to `NAME.html`."""
    return f"{os.path.splitext(page)[0]}_plans"


def plan_file(folder: str, cell: str) -> str:
    """Returns the path of a cell's plan file, which exists only if the plan fits."""
    return os.path.join(folder, f"{cell}.json")


def page_file(folder: str, cell: str) -> str:
    """Returns the path of the page about a cell's plan."""
    return os.path.join(folder, f"{cell}.html")


def write_files(folder: str, cell: Cell, result: Result) -> None:
    """Writes the plan file and the page of a cell.

    Args:
        folder: The folder, which must exist.
        cell: The cell. Its id names the files.
        result: Its plan, which must fit.

    Raises:
        OSError: The files can't be written.
    """
    from fastplan.plans.file import write_plan
    from fastplan.report.html import html_report

    plan = result.plan({"sku": cell.sku, "precision": cell.precision})
    replace_file(page_file(folder, cell.id), [html_report([plan]).encode()])
    # Last, because a cell is known by it.
    write_plan(plan, plan_file(folder, cell.id))
