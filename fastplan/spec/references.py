"""Python objects that files and command lines name as `package.module:function`."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class BadReference(ValueError):
    """A name that leads to nothing; says how far it leads."""


def is_reference(text: str) -> bool:
    """Whether a text has the form of a name."""
    return _REFERENCE.fullmatch(text) is not None


@contextmanager
def others_code() -> Iterator[None]:
    """Around code of a user's: what it prints goes to stderr, since stdout may be JSON or YAML."""
    with redirect_stdout(sys.stderr):
        yield


def find(target: str) -> Any:
    """The object of that name. Modules are looked for in the current directory too, and what they
    print goes to stderr."""
    home, _, name = target.partition(":")
    if os.getcwd() not in sys.path:
        # As `python -m` has it; the command's own script would be there instead.
        sys.path.insert(0, os.getcwd())
    try:
        with others_code():
            found: Any = importlib.import_module(home)
    except Exception as error:
        raise BadReference(f"{home} can't be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadReference(f"module {home} has no {name!r}")
        found = getattr(found, part)
    return found
