"""Files that a command is to write, looked at before it works for them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fastplan.cli.errors import CommandError
from fastplan.report.names import escape_name


def check_outputs(*paths: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Raises CommandError for the first file that can't be written, or must not be: since it is
    one of the inputs, or another output already. None is for no file."""
    read = {place for path in inputs if path for place in _places(path)}
    written: set[str] = set()
    for path in paths:
        if path is not None:
            problem = _problem(path) or _conflict(path, read, written)
            if problem:
                raise CommandError(f"`{escape_name(path)}` can't be written: {problem}")
            written.add(os.path.realpath(path))


def _places(path: str) -> Iterable[str]:
    """Where an input may be: `skus.yaml:mine` is in a file, too."""
    return map(os.path.realpath, (path, path.rpartition(":")[0] or path))


def _conflict(path: str, read: set[str], written: set[str]) -> str:
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        return ""  # a device takes it all
    if place in read:
        return "the command reads that file; write elsewhere"
    return "two outputs have that name; give each its own" if place in written else ""


def _problem(path: str) -> str:
    """What is wrong with the file's place, and the way out; empty for nothing."""
    folder = os.path.dirname(os.path.realpath(path))
    told = escape_name(os.path.dirname(path) or ".")
    if not path or os.path.isdir(path):
        return "give the name of a file"
    if not os.path.isdir(folder):
        return f"there is no directory {told}; make it first"
    is_device = os.path.exists(path) and not os.path.isfile(path)
    if not is_device and not os.access(folder, os.W_OK):
        return f"the directory {told} is read-only; write elsewhere"
    return ""
