"""Writes HTML reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastplan.model.plan import Plan


def write_page(
    plans: list[Plan], path: str, comparison: Any = None, findings: Sequence[str] = ()
) -> None:
    """One self-contained file about one plan or several."""
    from fastplan.files import replace_file
    from fastplan.report.html import html_report

    replace_file(path, [html_report(plans, comparison, findings).encode()])
