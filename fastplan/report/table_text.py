"""Tables as aligned lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fastplan.report.names import columns as width_of
from fastplan.report.names import escape_name
from fastplan.report.terminal import Style

_INDENT = "  "
_GAP = "  "
_NARROWEST = 6


class Column(NamedTuple):
    title: str
    right: bool = False


def table_lines(columns: list[Column], rows: list[list[str]], style: Style) -> Iterator[str]:
    """A line of titles, and the rows. Wide names are shortened until all fit."""
    cells = [[escape_name(cell) for cell in row] for row in rows]
    widths = [
        max(map(width_of, [column.title, *(row[i] for row in cells)]))
        for i, column in enumerate(columns)
    ]
    room = style.width - len(_INDENT) - len(_GAP) * (len(columns) - 1)
    # Names give way; figures are never cut.
    texts = [i for i, column in enumerate(columns) if not column.right]
    while sum(widths) > room and max(widths[i] for i in texts) > _NARROWEST:
        widths[max(texts, key=lambda i: widths[i])] -= 1
    titles = [column.title for column in columns]
    yield style.paint(_joined(titles, columns, widths, style), "dim")
    for row in cells:
        yield _joined(row, columns, widths, style)


def _joined(cells: list[str], columns: list[Column], widths: list[int], style: Style) -> str:
    parts = [
        style.fill(cell, width, right=column.right)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return (_INDENT + _GAP.join(parts)).rstrip()
