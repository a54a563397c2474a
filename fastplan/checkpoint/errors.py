"""Errors of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

from fastplan.report.units import format_count


class CheckpointError(ValueError):
    """A checkpoint that can't be read, or that lacks what a job or a plan needs.

    Nothing has been written when it is raised by `load`, and nothing is left behind by `convert`.

    Attributes:
        problems: by key of table, why it can't be loaded; empty if it is not about tables.
    """

    def __init__(self, text: str, problems: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.problems = dict(problems or {})


def raise_problems(problems: Mapping[str, str]) -> None:
    """Raises the first problem of tables, if any, with the number of others."""
    if problems:
        first = next(iter(problems.values()))
        more = format_count(len(problems) - 1, "more table")
        others = f" ({more} can't be loaded)" if len(problems) > 1 else ""
        raise CheckpointError(first + others, problems)
