"""Escapes and shortens names of tables and models for display."""

from __future__ import annotations

import unicodedata

# Control, format (bidi marks, zero widths), surrogate, private use, unassigned; line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escape_name(name: str) -> str:
    """Returns the name with characters that are invisible or move other text as escapes."""
    if name.isascii() and name.isprintable():
        return name
    return "".join(_escape(c) if unicodedata.category(c) in _HIDDEN else c for c in name)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """Returns the number of terminal columns of an escaped text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(name: str, width: int, *, ellipsis: str = "…") -> str:
    """Returns the escaped name in at most `width` columns.

    The middle is cut out, because names often differ in their ends.
    """
    name = escape_name(name)
    if columns(name) <= width:
        return name
    room = max(0, width - len(ellipsis))
    tail = _first_columns(name[::-1], room // 2)[::-1]
    return _first_columns(name, room - columns(tail)) + ellipsis + tail


def _first_columns(text: str, width: int) -> str:
    taken = 0
    for i, character in enumerate(text):
        taken += _columns(character)
        if taken > width:
            return text[:i]
    return text


def table_name(path: str, name: str) -> str:
    """Returns a table's full name, as TorchRec writes it."""
    return f"{path}.{name}" if path else name
