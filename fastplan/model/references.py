"""Python objects that files and command lines name as `package.module:function`."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from fastplan.model.job import CannotPlan

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_OWN = re.compile(r"fastplan\.costs\.[a-z]+:[a-z_]+")


class BadReference(ValueError):
    """A name can't be imported. The message says which part is missing."""


class CodeNotTrusted(CannotPlan):
    """A file names code, and the caller has not allowed it to run."""

    def __init__(self, name: str, file: str = "", field: str = "") -> None:
        super().__init__(name, file, field)
        self.name = name
        self.file = file
        self.field = field

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        names = f"`{self.field}` names {self.name}: that" if self.field else self.name
        return (
            f"{where}{names} is code, and importing it runs it. If you trust the "
            "file, pass `--trust-code` on a command line, or the argument `trust` in Python"
        )


def check_trust(trust: bool) -> None:
    """Raises TypeError for values other than True and False, such as the string "no"."""
    if type(trust) is not bool:
        raise TypeError(f"`trust` must be True or False, not {trust!r}")


def is_reference(text: str) -> bool:
    """Whether a string has the form `package.module:function`."""
    return _REFERENCE.fullmatch(text) is not None


def is_own(name: str) -> bool:
    """Whether this names a cost that comes with fastplan."""
    return _OWN.fullmatch(name) is not None


@contextmanager
def others_code() -> Iterator[None]:
    """Redirects the output of user code to stderr, because stdout may be JSON or YAML."""
    with redirect_stdout(sys.stderr):
        yield


def find(target: str) -> Any:
    """Imports the object of that name.

    This runs its module: callers check for trust first if the name comes from a file. Modules may
    be in the current directory. Their output goes to stderr.

    Raises:
        BadReference: the name can't be imported.
    """
    home, _, name = target.partition(":")
    if not is_own(target) and os.getcwd() not in sys.path:
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
