"""Text on a terminal: names from outside, colours and characters of a stream, tables."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, TextIO

# Defined there, because packages below this one write to logs.
from fastplan.model.units import escape_name as escape_name

MOST_COLUMNS = 100
_FEWEST_COLUMNS = 40
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}


class Style(NamedTuple):
    """What a stream can show. The default suits a file."""

    width: int = MOST_COLUMNS
    colour: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        """Returns the style of a stream, by its encoding, its terminal and the environment."""
        terminal = stream.isatty()
        width = MOST_COLUMNS
        if terminal:
            from shutil import get_terminal_size  # loads bz2 and lzma, which pipes need not

            width = get_terminal_size((MOST_COLUMNS, 40)).columns
        return cls(
            width=max(_FEWEST_COLUMNS, min(width, MOST_COLUMNS)),
            colour=_wants_colour(terminal),
            unicode=_shows("█▒…", stream),
        )

    def paint(self, text: str, *colours: str) -> str:
        """Returns the text in a colour, if the stream shows colours."""
        if not self.colour or not text or not colours:
            return text
        return f"\x1b[{';'.join(_COLOURS[colour] for colour in colours)}m{text}\x1b[0m"

    def name(self, text: str, width: int) -> str:
        """Returns a name that fits into `width` columns, in characters of the stream."""
        if not self.unicode:
            text = text.encode("ascii", "backslashreplace").decode("ascii")
        return shorten(text, width, ellipsis="…" if self.unicode else "...")

    def labelled(self, label: str, room: int, text: str, *colours: str) -> list[str]:
        """Returns the lines of a label with a sentence beside it.

        The sentence is wrapped, not shortened: that would cut out figures in its middle.

        Args:
            label: The label, in the first line.
            room: The columns of the label.
            text: The sentence.
            colours: Of the sentence.
        """
        from textwrap import wrap

        width = self.width - room
        lines = wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
        return [
            f"{'' if number else label:<{room}}" + self.paint(self.name(line, width), *colours)
            for number, line in enumerate(lines)
        ]

    def fill(self, text: str, width: int, *, right: bool = False) -> str:
        """Returns the text shortened and padded to exactly `width` columns."""
        text = self.name(text, width)
        gap = " " * (width - display_width(text))
        return gap + text if right else text + gap


def _wants_colour(terminal: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def _shows(characters: str, stream: TextIO) -> bool:
    try:
        characters.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def display_width(text: str) -> int:
    """Returns the number of terminal columns of an escaped text."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(name: str, width: int, *, ellipsis: str = "…") -> str:
    """Returns the escaped name in at most `width` columns.

    The middle is cut out, because names often differ in their ends.
    """
    name = escape_name(name)
    if display_width(name) <= width:
        return name
    room = max(0, width - len(ellipsis))
    tail = _first_columns(name[::-1], room // 2)[::-1]
    return _first_columns(name, room - display_width(tail)) + ellipsis + tail


def _first_columns(text: str, width: int) -> str:
    taken = 0
    for i, character in enumerate(text):
        taken += _character_width(character)
        if taken > width:
            return text[:i]
    return text


def table_name(path: str, name: str) -> str:
    """Returns a table's full name, as TorchRec writes it."""
    return f"{path}.{name}" if path else name


_INDENT = "  "
_GAP = "  "
_NARROWEST = 6


class Column(NamedTuple):
    """A column of a table: its title, and whether its cells are right-aligned."""

    title: str
    right: bool = False


def table_lines(columns: list[Column], rows: list[list[str]], style: Style) -> Iterator[str]:
    """Yields a line of titles, and the rows. Wide names are shortened until a line fits."""
    cells = [[escape_name(cell) for cell in row] for row in rows]
    widths = [
        max(map(display_width, [column.title, *(row[i] for row in cells)]))
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
