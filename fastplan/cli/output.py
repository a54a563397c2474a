"""The output of commands: JSON, tables, progress and files.

rich draws tables and bars on a terminal. Its import takes 30 ms, so it is imported only if needed:
tables in a pipe are plain lines, and a bar is drawn only if the work takes a second.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from fastplan.cli.errors import CommandError
from fastplan.report.terminal import Style, escape_name

if TYPE_CHECKING:
    from rich.console import Console

    from fastplan.model.plan import Plan

_PATIENCE = 1.0  # seconds before progress is shown
_REFRESH = 0.1  # seconds between two states of a bar
_NO_LIMIT = 1 << 20  # columns: readers of a pipe need whole names
_BEGIN = 4096  # bytes that show what a file is
# How the files begin that commands write.
_KINDS = {
    "a plan file": rb'\s*\{.*"fastplan sharding plan"',
    "a spec that `fastplan export` wrote": rb'model:|\{\s*"model":',
    "an HTML page": rb"(?i)\s*<!doctype html",
    "a Chrome trace": rb'\{"displayTimeUnit":',
    "a Parquet file": rb"PAR1",
    "a SKU file of `fastplan calibrate`": rb"# Measured by `fastplan calibrate`",
    "measurements of `fastplan calibrate`": rb'\{"case":',
}


def style() -> Style:
    """Returns the style that stdout supports."""
    return Style.of(sys.stdout)


def print_lines(*lines: str) -> None:
    """Prints lines without colours to stdout, for any texts in them."""
    print("\n".join(map(escape_name, lines)))


def print_json(value: Any, *, allow_nan: bool = True) -> None:
    """Prints a document to stdout."""
    import json

    print(json.dumps(value, indent=2, allow_nan=allow_nan))


def print_written(*paths: str | None) -> None:
    """Prints the names of written files, if any, below a report."""
    if written := [path for path in paths if path]:
        print_lines("", f"written: {', '.join(written)}")


def report_written(path: str, content: str) -> None:
    """Prints the name of a written file and what is in it."""
    print_lines(f"written: {path}{content}")


def warn(text: str) -> None:
    """Prints a line to stderr, for any text."""
    print(f"fastplan: {escape_name(text)}", file=sys.stderr)


def report_interrupt(text: str) -> None:
    """Prints the effect of an interrupt, below the terminal's `^C`."""
    print(f"\nfastplan: interrupted{escape_name(text)}", file=sys.stderr)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """Returns the lines of a table for stdout. On a terminal, long texts are wrapped.

    Args:
        titles: One for each column.
        rows: Texts, which may contain anything.
        align: A `<` or `>` for each column; numbers go right.
    """
    if sys.stdout.isatty():
        return _drawn_table(titles, rows, align)
    from fastplan.report.terminal import Column, table_lines

    columns = [Column(title, side == ">") for title, side in zip(titles, align, strict=True)]
    return list(
        table_lines(columns, [list(row) for row in rows], style()._replace(width=_NO_LIMIT))
    )


def _drawn_table(titles: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    from io import StringIO

    from rich.table import Table

    drawn = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    for title, side in zip(titles, align, strict=True):
        if side == ">":
            drawn.add_column(title, justify="right", no_wrap=True)
        else:
            drawn.add_column(title, overflow="fold")
    for row in rows:
        drawn.add_row(*map(escape_name, row))
    stream = StringIO()
    _console(stream, sys.stdout).print(drawn)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _console(stream: TextIO, like: TextIO) -> Console:
    """Returns a rich console that writes to `stream` in the format that `like` supports."""
    from shutil import get_terminal_size

    from rich.console import Console

    colour = Style.of(like).colour
    return Console(
        file=stream,
        width=max(40, get_terminal_size().columns),
        force_terminal=True,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


class Progress:
    """Progress of `total` steps on stderr, to be used in a `with` statement.

    A bar with rate and time left, only on a terminal: in a pipe or a file it would be noise. Work
    that ends soon shows nothing.
    """

    def __init__(
        self,
        what: str,
        total: int,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = max(1, total)
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._begin = self._shown_at = clock()
        self._done = 0
        self._bar: Any = None  # rich's bar, once it is shown

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, steps: int = 1) -> None:
        """Counts steps as done."""
        self.reach(self._done + steps)

    def reach(self, done: int) -> None:
        """Sets the number of steps that are done."""
        self._done = done
        now = self._clock()
        if now - self._begin < _PATIENCE:
            return
        if self._stream.isatty() and now - self._shown_at >= _REFRESH:
            self._shown_at = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        if self._bar is None:
            # It refreshes here and not in a separate thread, because commands fork.
            self._bar = Progress(
                BarColumn(24, complete_style="green", finished_style="green"),
                TextColumn("{task.description}", markup=False),
                console=_console(self._stream, self._stream),
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
                get_time=self._clock,
            )
            self._bar.add_task("", total=self._total)
            self._bar.start()
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=self._done, description=self._state(now))
        self._bar.refresh()

    def _state(self, now: float) -> str:
        share = min(1.0, self._done / self._total)
        return f"{self._what} {100 * share:3.0f} % ({self._detail(now)})"

    def _detail(self, now: float) -> str:
        rate = self._done / max(1e-9, now - self._begin)
        left = max(0, self._total - self._done) / rate if rate else 0.0
        shown = f"{rate:{',.0f' if rate >= 100 else '.3g'}}"
        return f"{self._done} of {self._total}, {shown}/s, {left:.0f} s left"


class Countdown(Progress):
    """Progress of work that takes a known time, to be used in a `with` statement.

    A thread shows it, so the work does not have to report progress. If the time is None (unknown),
    nothing is shown.
    """

    def __init__(self, what: str, seconds: float | None, *, stream: TextIO | None = None) -> None:
        super().__init__(what, max(1, round((seconds or 0.0) / _REFRESH)), stream=stream)
        self._seconds = seconds

    def __enter__(self) -> Countdown:
        if self._seconds is not None:
            from threading import Event, Thread

            self._over = Event()
            self._thread = Thread(target=self._count, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._seconds is not None:
            self._over.set()
            self._thread.join()
        super().__exit__()

    def _count(self) -> None:
        while not self._over.wait(_REFRESH):
            self.reach(round((self._clock() - self._begin) / _REFRESH))

    def _detail(self, now: float) -> str:
        return f"{max(0.0, (self._seconds or 0.0) - (now - self._begin)):.0f} s left"


def write_page(
    plans: list[Plan], path: str, comparison: Any = None, findings: Sequence[str] = ()
) -> None:
    """Writes an HTML report about one plan or several, as one file."""
    from fastplan.files.storage import replace_file
    from fastplan.report.html import html_report

    replace_file(path, [html_report(plans, comparison, findings).encode()])


def check_outputs(*paths: str | None, inputs: Iterable[str | None] = ()) -> None:
    """Checks output files before a command starts its work.

    Args:
        paths: The files; None for no file.
        inputs: The files that the command reads.

    Raises:
        CommandError: A file can't be written, or is also an input or another output.
    """
    read = {place for path in inputs if path for place in _paths_of_input(path)}
    written: set[str] = set()
    for path in paths:
        if path is not None:
            problem = _why_not_writable(path) or _conflict(path, read, written)
            if problem:
                raise CommandError(f"`{escape_name(path)}` can't be written: {problem}")
            written.add(os.path.realpath(path))


def check_replaced(
    *,
    plan: str | None = None,
    spec: str | None = None,
    page: str | None = None,
    trace: str | None = None,
    parquet: str | None = None,
    sku: str | None = None,
    points: str | None = None,
) -> None:
    """Checks that output files replace only earlier outputs of their kind.

    A command also reads files that its command line does not name: specs name SKU files, sweeps
    name specs, directories have recordings. None of them looks like its output.

    Raises:
        CommandError: A file exists and is something else.
    """
    paths = (plan, spec, page, trace, parquet, sku, points)
    for path, (kind, begin) in zip(paths, _KINDS.items(), strict=True):
        if path is not None and os.path.isfile(path):
            with open(path, "rb") as file:
                found = file.read(_BEGIN)
            if found and not re.match(begin, found, re.DOTALL):  # `mktemp` makes empty files
                raise CommandError(
                    f"`{escape_name(path)}` can't be written: it exists and is not {kind}; choose "
                    "another name or remove it"
                )


def print_and_write(show: Callable[[], None], write: Callable[[], None]) -> None:
    """Prints a result, then writes its files.

    The order is so that a full disk loses only the files. If stdout is closed or full, the files
    are written all the same, before the error is raised.
    """
    try:
        show()
    except OSError:
        write()
        raise
    write()


def _paths_of_input(path: str) -> Iterable[str]:
    """Returns the possible paths of an input: `skus.yaml:mine` is in the file `skus.yaml`."""
    return map(os.path.realpath, (path, path.rpartition(":")[0] or path))


def _conflict(path: str, read: set[str], written: set[str]) -> str:
    place = os.path.realpath(path)
    if os.path.exists(place) and not os.path.isfile(place):
        return ""  # a device accepts several outputs
    if place in read:
        return "the command reads that file; choose another output"
    return "two outputs have that name; give each its own" if place in written else ""


def _why_not_writable(path: str) -> str:
    """Returns why the file can't be written, and what to do; empty if it can."""
    folder = os.path.dirname(os.path.realpath(path))
    if path == "-":  # elsewhere a name for stdout
        return "give the name of a file, or /dev/stdout to print it"
    if not path or os.path.isdir(path):
        return "give the name of a file"
    if not os.path.isdir(folder):
        return f"there is no directory {_directory(path)}; create it first"
    is_device = os.path.exists(path) and not os.path.isfile(path)
    if not is_device and not os.access(folder, os.W_OK):
        return f"the directory {_directory(path)} is read-only; write elsewhere"
    return ""


def _directory(path: str) -> str:
    return escape_name(os.path.dirname(path) or ".")
