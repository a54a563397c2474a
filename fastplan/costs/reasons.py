"""Turns numba's compile errors into one readable message with the line."""

from __future__ import annotations

import dis
import linecache
import re
from types import FunctionType

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Numba's text around the reason: the name of a pass, an excerpt of the source, its call stack.
_HEAD = re.compile(r"^Failed in \w+ mode pipeline \(step: [^)]*\)\n")
_TAIL = re.compile(r"\n\s*(File \"|During: |There are \d+ candidate|This error may have been)")
_MOST_WORDS = 400


def reason_of(error: Exception, function: FunctionType) -> str:
    """Returns the message for an error that numba raised while it compiled the function."""
    code = function.__code__
    line: int | None = getattr(getattr(error, "loc", None), "line", None)
    text = _HEAD.sub("", _COLOUR.sub("", str(error)).strip())
    text = _TAIL.split(text, maxsplit=1)[0]
    if isinstance(error, KeyError) and error.args:
        # For a field that a record does not have, numba's message is only the name.
        field = str(error.args[0]).strip("'\"")
        line = _line_of(function, field)
        text = f"there is no field `{field}`"
    reason = " ".join(text.split())
    if len(reason) > _MOST_WORDS:
        reason = f"{reason[:_MOST_WORDS]} ..."
    place = f"{code.co_filename}:{line or code.co_firstlineno}"
    source = linecache.getline(code.co_filename, line).strip() if line else ""
    shown = f" in `{source}`" if source else ""
    return f"{function.__qualname__} can't be compiled, {place}{shown}: {reason}"


def _line_of(function: FunctionType, attribute: str) -> int | None:
    line = None
    for step in dis.get_instructions(function):
        line = step.starts_line or line
        if step.opname in ("LOAD_ATTR", "STORE_ATTR", "LOAD_METHOD") and step.argval == attribute:
            return line
    return None
