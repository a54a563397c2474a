"""Exit codes and error messages."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fastplan.report.terminal import escape_name

OK = 0
FAILED = 1
NO = 2  # it worked, and the answer is no: plans differ, an entry is bad, doctor found a problem
INTERRUPTED = 130
PIPE_CLOSED = 141
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CommandError(Exception):
    """An error message for the user: what is wrong and what to do."""


class UsageError(CommandError):
    """The command line is invalid."""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Returns the message for an unknown word, with the nearest known one."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    way_out = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
    return f"unknown {what.lower()} `{escape_name(word)}`: {way_out}"


@contextmanager
def naming_options(*kinds: type[Exception], **others: str) -> Iterator[None]:
    """Turns errors into UsageErrors that say `--time-budget` instead of `time_budget`.

    Args:
        kinds: The classes of errors to convert.
        others: Option names by argument, if they differ.
    """
    try:
        yield
    except kinds as error:
        raise UsageError(
            re.sub(
                "`([a-z_]+)`",
                lambda found: "--" + others.get(found[1], found[1]).replace("_", "-"),
                str(error),
            )
        ) from error


def message(error: BaseException) -> str:
    """Returns the error in one line.

    Messages of fastplan's own exceptions are for the user and are shown unchanged. Other exceptions
    are expected only if they are about a file or an installation.
    """
    text = _line(error)
    if type(error).__module__.partition(".")[0] == "fastplan":
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        advice = "; free some space, or write elsewhere" if error.errno in _FULL else ""
        if error.filename is not None:
            return f"{escape_name(str(error.filename))}: {error.strerror}{advice}"
        if advice:  # a stream without a name, such as stdout
            return f"{error.strerror}{advice}"
    if isinstance(error, ImportError):
        if isinstance(error.__cause__, ImportError):  # numpy wraps it in a page of advice
            text = _line(error.__cause__)
        return f"{text}; `fastplan doctor` shows what to install"
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{named} (--debug shows where)"


def _line(error: BaseException) -> str:
    return escape_name(" ".join(line.strip() for line in str(error).splitlines()))
