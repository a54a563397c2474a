"""How to write to a stream: its width, its characters, its colours."""

from __future__ import annotations

import os
from typing import NamedTuple, TextIO

from fastplan.report.names import columns, shorten

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
        """The style of a stream, by its encoding, its terminal and the environment."""
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
        """The text in a colour, where colours are wanted."""
        if not self.colour or not text or not colours:
            return text
        return f"\x1b[{';'.join(_COLOURS[colour] for colour in colours)}m{text}\x1b[0m"

    def name(self, text: str, width: int) -> str:
        """A name that fits, in characters the stream has."""
        if not self.unicode:
            text = text.encode("ascii", "backslashreplace").decode("ascii")
        return shorten(text, width, ellipsis="…" if self.unicode else "...")

    def labelled(self, label: str, room: int, text: str, *colours: str) -> list[str]:
        """A label of `room` columns and a sentence beside it, on as many lines as it takes: what
        fits names would cut figures out of its middle."""
        from textwrap import wrap

        width = self.width - room
        lines = wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
        return [
            f"{'' if number else label:<{room}}" + self.paint(self.name(line, width), *colours)
            for number, line in enumerate(lines)
        ]

    def fill(self, text: str, width: int, *, right: bool = False) -> str:
        """The text shortened and padded to exactly `width` columns."""
        text = self.name(text, width)
        gap = " " * (width - columns(text))
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
