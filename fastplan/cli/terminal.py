"""What a terminal shows beside a report: plain tables, and progress on stderr.

Colours, widths and names are fastplan.report.terminal's: `Style.of(sys.stdout).paint(...)`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread
from typing import TextIO

from fastplan.report.table_text import Column, table_lines
from fastplan.report.terminal import Style

_PATIENCE = 1.0  # seconds before progress is worth showing
_REFRESH = 0.1  # seconds between two states of a bar
_BAR = 24
_NO_LIMIT = 1 << 20  # columns: what reads a pipe wants whole names


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """Lines of a table for stdout. `align` has a `<` or `>` per column; numbers go right."""
    style = Style.of(sys.stdout)
    if not sys.stdout.isatty():
        style = style._replace(width=_NO_LIMIT)
    columns = [Column(title, side == ">") for title, side in zip(titles, align, strict=True)]
    return list(table_lines(columns, [list(row) for row in rows], style))


class Progress:
    """Progress of `total` steps, to be used in a `with` statement.

    A bar with rate and time left on a terminal; elsewhere a line per tenth. Work that ends soon
    shows nothing.
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
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream is not None and self._stream.isatty()
        self._clock = clock
        self._begin = clock()
        self._done = 0
        self._shown_at = self._begin
        self._tenths = 0
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._write("\r\x1b[K")

    def advance(self, steps: int = 1) -> None:
        """Counts steps as done."""
        self._done += steps
        now = self._clock()
        if self._stream is None or now - self._begin < _PATIENCE:
            return
        if self._live:
            if now - self._shown_at >= _REFRESH:
                self._shown_at = now
                self._drawn = True
                self._write(f"\r\x1b[K{self._state(now)}")
        elif (tenths := 10 * self._done // max(1, self._total)) > self._tenths:
            self._tenths = tenths
            self._write(self._state(now) + "\n")

    def _state(self, now: float) -> str:
        share = min(1.0, self._done / max(1, self._total))
        rate = self._done / max(1e-9, now - self._begin)
        left = max(0, self._total - self._done) / rate if rate else 0.0
        state = f"{self._what} {100 * share:3.0f} % ({self._done} of {self._total}"
        state += f", {rate:{',.0f' if rate >= 100 else '.3g'}}/s, {left:.0f} s left)"
        return self._drawn_bar(share, state)

    def _drawn_bar(self, share: float, state: str) -> str:
        """The state behind a bar, where there is a terminal for it."""
        if not self._live:
            return state
        filled = round(_BAR * share)
        bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] {state}"
        return bar[: max(10, shutil.get_terminal_size().columns - 1)]

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Countdown:
    """Progress of work that takes so many seconds, to be used in a `with` statement.

    A thread shows it, so the work itself need not. None is for work of unknown length, and
    shows nothing.
    """

    def __init__(self, what: str, seconds: float | None, *, stream: TextIO | None = None) -> None:
        self._over = Event()
        self._progress = _Seconds(what, seconds or 0.0, stream)
        self._thread = None if seconds is None else Thread(target=self._count, daemon=True)

    def __enter__(self) -> Countdown:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _count(self) -> None:
        with self._progress as progress:
            while not self._over.wait(_REFRESH):
                progress.advance()


class _Seconds(Progress):
    """Progress whose steps are what the clock makes in between two looks at it."""

    def __init__(self, what: str, seconds: float, stream: TextIO | None) -> None:
        super().__init__(what, max(1, round(seconds / _REFRESH)), stream=stream)
        self._seconds = seconds

    def _state(self, now: float) -> str:
        passed = now - self._begin
        share = min(1.0, passed / max(self._seconds, _REFRESH))
        state = f"{self._what} {100 * share:3.0f} % ({max(0.0, self._seconds - passed):.0f} s left)"
        return self._drawn_bar(share, state)
