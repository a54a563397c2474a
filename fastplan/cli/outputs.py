"""Files that a command is to write, looked at before it works for them."""

from __future__ import annotations

import os

from fastplan.cli.errors import CommandError
from fastplan.report.names import visible


def check_outputs(*paths: str | None) -> None:
    """Raises CommandError for the first file that can't be written; None is for no file."""
    for path in paths:
        if path is not None:
            problem = _problem(path)
            if problem:
                raise CommandError(f"`{visible(path)}` can't be written: {problem}")


def _problem(path: str) -> str:
    """What is wrong with the file's place, and the way out; empty for nothing."""
    folder = os.path.dirname(os.path.realpath(path))
    told = visible(os.path.dirname(path) or ".")
    if not path or os.path.isdir(path):
        return "give the name of a file"
    if not os.path.isdir(folder):
        return f"there is no directory {told}; make it first"
    is_device = os.path.exists(path) and not os.path.isfile(path)
    if not is_device and not os.access(folder, os.W_OK):
        return f"the directory {told} is read-only; write elsewhere"
    return ""
