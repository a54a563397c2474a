"""Exit codes, and what a user gets to read of an error."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fastplan.report.names import escape_name

OK = 0
FAILED = 1
NO = 2  # it worked, and the answer is no: plans differ, an entry is bad, doctor found a problem
INTERRUPTED = 130
PIPE_CLOSED = 141
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CommandError(Exception):
    """What a command tells its user in place of a result: what is wrong, and the way out."""


class UsageError(CommandError):
    """The command line is not one that can be run."""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Says that the word is not one of the known ones, and which one may have been meant."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    way_out = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
    return f"unknown {what.lower()} `{escape_name(word)}`: {way_out}"


@contextmanager
def naming_options(*kinds: type[Exception], **others: str) -> Iterator[None]:
    """Turns such errors into UsageErrors that say `--time-budget` for the library's `time_budget`.

    Options that are called otherwise than the argument are in `others`.
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
    """The error in one line.

    Exceptions of fastplan's own classes were raised for the user and speak for themselves. Others
    are only known to be expected if they are about a file or an installation.
    """
    text = _line(error)
    if type(error).__module__.partition(".")[0] == "fastplan":
        return text or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        advice = "; free some space, or write elsewhere" if error.errno in _FULL else ""
        if error.filename is not None:
            return f"{escape_name(str(error.filename))}: {error.strerror}{advice}"
        if advice:  # of a stream, such as stdout, and those have no name
            return f"{error.strerror}{advice}"
    if isinstance(error, ImportError):
        if isinstance(error.__cause__, ImportError):  # numpy wraps it in a page of advice
            text = _line(error.__cause__)
        return f"{text}; `fastplan doctor` shows what to install"
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{told} (--debug shows where)"


def _line(error: BaseException) -> str:
    return escape_name(" ".join(line.strip() for line in str(error).splitlines()))
