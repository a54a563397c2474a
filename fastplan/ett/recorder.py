"""Events in, lines out: what a process does, kept small enough to leave on for months.

Consecutive steps are one line, written once a second at first and ever more rarely later. Short
phases in steady training are summed into that line. So a step costs a look at the clock and a lock,
and memory and disk do not grow with the number of events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastplan.ett import lines
from fastplan.ett.frames import Frame, Stack, add, merge
from fastplan.ett.identity import Identity
from fastplan.ett.journal import Journal
from fastplan.ett.lines import Sums
from fastplan.ett.values import plain, shown, warn, whole

_SECOND = 1_000_000_000
_LONGEST_WAIT = 60 * _SECOND
_WAIT_SHARE = 1000  # a killed process loses no more than this part of its attempt's steps
_SHORT_AT_START = _SECOND // 1000
_SHORT_IN_TRAINING = _SECOND
_FULL = 1 << 16  # characters of lines that are written without waiting any longer
_MARK_MASK = 255  # steps whose end is kept, so that clocks of hosts can be compared


class Recorder:
    """Records one process. Safe to call from any thread; never raises, whatever it is told.

    An event that can't be recorded is counted as a lost line, and the first one is logged.
    """

    def __init__(
        self,
        journal: Journal,
        identity: Identity,
        *,
        watched: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.path = journal.path
        self._journal = journal
        self._now = clock
        self._wall = wall
        self._lock = threading.RLock()  # a signal handler may record while its thread does
        self._busy = False  # whether this very thread is at it, below the handler
        self._waiting: list[Callable[[], None]] = []  # what such handlers had to say
        self._local = threading.local()
        self._lines: list[str] = []
        self._size = 0
        self._open = True
        self._begun = self._since = clock()
        self._steady = False  # a step has ended
        self._short = _SHORT_AT_START
        self._batch = False  # it is known when the first one began
        self._next: int | None = None  # the number that the steps at hand go on with, if there are
        self._last: int | None = None
        self._first = self._first_begin = self._due = 0
        self._mark: list[int] = []
        self._told = False  # that something is not recorded
        self._trainer = self._stack()
        self._aside: Sums = {}  # short phases in the background
        self._emit(lines.start(identity, self._begun, wall(), watched))
        self._write(self._begun)

    def begin(self, frame: Frame, announce: bool = False) -> None:
        """Opens a phase in this thread. An announced one is on disk before it ends."""
        try:
            stack: Stack = self._local.stack
        except AttributeError:
            stack = self._stack()
        frame.recorder = self
        frame.stack = stack
        frame.inner = 0
        frame.sums = None
        frame.announced = announce or not (self._steady or stack)
        stack.append(frame)
        frame.begin = now = self._now()
        if frame.announced:
            self._do(lambda: self._announce(frame, now))

    def end(self, frame: Frame) -> None:
        """Closes a phase, in whatever order."""
        now = self._now()
        try:
            self._close(frame, now)
        except Exception as error:  # another thread has closed it, too
            self._lose(error)

    def _close(self, frame: Frame, now: int) -> None:
        stack = frame.stack
        took = now - frame.begin
        if stack and stack[-1] is frame:
            stack.pop()
        elif frame in stack:
            stack.remove(frame)
        if stack:
            stack[-1].inner += took
        if frame.announced or frame.more or took >= self._short:
            # Before all is locked: it may run code of the job's.
            frame.more = plain(frame.more) if frame.more else None
            self._do(lambda: self._add_phase(frame, took, now))
        elif stack:
            parent = stack[-1]
            if parent.sums is None:
                parent.sums = {}
            add(parent.sums, frame, took)
        elif stack.background:
            self._do(lambda: add(self._aside, frame, took))
        else:
            stack.add(frame, took, self._since)

    def add(self, name: str, begin: int, end: int, *, background: bool = False) -> None:
        """Records a phase that is over already, within those that are open in this thread."""
        stack = self._stack()
        if stack and begin >= stack[-1].begin:
            stack[-1].inner += end - begin

        def write() -> None:
            self._emit(lines.phase(name, begin, end - begin, background, None, None))
            if not (stack or background or self._batch):
                self._since = max(self._since, end)
            self._write(self._now())

        self._do(write)

    def step(self, number: int) -> None:
        """Step `number` has just ended; the one after it has begun."""
        now = self._now()
        with self._lock:  # written out, not `_do`: this is what training pays for
            if self._busy:
                self._waiting.append(lambda: self._add_step(whole(number), now))
                return
            self._busy = True
            try:
                if type(number) is not int:
                    number = whole(number)
                if number == self._next and now < self._due:
                    self._next = number + 1
                    self._since = now
                    if not number & _MARK_MASK:
                        self._mark = [number, now]
                else:
                    self._add_step(whole(number), now)
            except Exception as error:
                self._lose(error)
            finally:
                self._busy = False
            if self._waiting:
                self._do(_nothing)

    def first_batch(self) -> None:
        """The first batch is about to be trained on."""
        if self._batch:
            return
        now = self._now()

        def write() -> None:
            self._batch = True
            self._since = now
            self._event("first_batch", now)

        self._do(write)

    def checkpoint(self, step: int) -> None:
        """All steps up to this one are on disk, and a restart would not lose them."""
        self._do(lambda: self._mark_end("checkpoint", step=whole(step)))

    def failure(self, cause: str) -> None:
        """Training has failed."""
        told = shown(cause)
        self._do(lambda: self._mark_end("failure", cause=told))

    def identify(self, rank: int, world: int) -> None:
        """The rank turned out after the file was named."""
        self._do(lambda: self._event("rank", self._now(), rank=whole(rank), world=whole(world)))

    @contextmanager
    def guard(self) -> Iterator[None]:
        """For hooks: what goes wrong in the block is lost and told, and the job goes on."""
        try:
            yield
        except Exception as error:
            self._lose(error)

    @property
    def last_step(self) -> int | None:
        """The step that ended last, if one has."""
        with self._lock:
            return self._last if self._next is None else self._next - 1

    def is_open(self, name: str | None = None) -> bool:
        """Whether this thread is in a phase, of that name if one is given."""
        return any(name is None or frame.name == name for frame in self._stack())

    def in_background(self) -> bool:
        """Whether this thread neither is the main one nor trains."""
        return self._stack().background

    def stop(self) -> None:
        """Ends the record in good order. Calls after this are ignored."""
        self._do(self._end)

    def abandon(self) -> None:
        """In a forked child: the file is its parent's, and so is a lock that was held."""
        self._lock = threading.RLock()
        self._open = self._busy = False
        self._waiting.clear()
        self._lines.clear()
        self._journal.abandon()

    def _do(self, action: Callable[[], None]) -> None:
        """Does it, with all locked; in a signal handler that has come between, a little later."""
        with self._lock:
            if self._busy:
                self._waiting.append(action)
                return
            self._busy = True
            try:
                self._attempt(action)
                while self._waiting:
                    self._attempt(self._waiting.pop(0))
            finally:
                self._busy = False

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        self._journal.lost += 1
        if not self._told:
            self._told = True
            warn("%s lacks an event: %s: %s", self.path, type(error).__name__, error)

    def _announce(self, frame: Frame, now: int) -> None:
        self._write_steps()  # so that they end where something else begins
        self._emit(lines.begin(frame.name, now, frame.stack.background))
        self._write(now)

    def _mark_end(self, kind: str, **more: Any) -> None:
        """An event that the steps before it end with."""
        self._write_steps()
        now = self._now()
        self._write_rest(self._stack(), now)  # it may be the last that the process does
        self._event(kind, now, **more)

    def _end(self) -> None:
        if not self._open:
            return
        self._write_steps()
        now = self._now()
        self._write_rest(self._trainer, now)
        self._event("end", now, wall=self._wall())
        self._open = False
        self._journal.close()

    def _stack(self) -> Stack:
        try:
            return self._local.stack  # type: ignore[no-any-return]
        except AttributeError:
            aside = threading.current_thread() is not threading.main_thread()
            self._local.stack = stack = Stack(aside)
            return stack

    def _add_step(self, number: int, now: int) -> None:
        """The ways of a step that are not the usual one."""
        if not self._steady:
            self._steady = self._batch = True
            self._short = _SHORT_IN_TRAINING
            self._trainer = self._stack()
            self._trainer.background = False  # whatever thread trains holds up training
            self._mark = [number, now]
        elif self._next is not None and number != self._next:
            self._write_steps()
        if self._next is None:
            self._first, self._first_begin = number, self._since
        self._next = number + 1
        self._since = now
        if now >= self._due:
            # While the disk takes nothing, the line grows instead of becoming many.
            if self._journal.blocked:
                self._write(now)
            if not self._journal.blocked:
                self._write_steps()
                self._write(now)
            wait = (now - self._begun) // _WAIT_SHARE
            self._due = now + min(_LONGEST_WAIT, max(_SECOND, wait))

    def _write_steps(self) -> None:
        """Turns the steps at hand into a line."""
        if self._next is None:
            return
        self._last = self._next - 1
        stack = self._stack()
        # Another thread's sums may be growing right now: they go into that thread's next line.
        sums: Sums = {}
        if stack is self._trainer:
            stack.catch_up(self._since)
            sums = stack.sums
        self._emit(
            lines.steps(
                (self._first, self._last),
                (self._first_begin, self._since - self._first_begin),
                self._wall(),
                (sums, self._aside),
                self._mark,
            )
        )
        self._next, self._mark, self._aside = None, [], {}
        if sums:
            stack.sums = {}

    def _write_rest(self, stack: Stack, now: int) -> None:
        """Turns the short phases after the last step into a line; a step that follows has them."""
        if stack is not self._trainer:
            return
        merge(stack.sums, stack.late)
        if stack.sums or self._aside:
            self._emit(lines.rest(self._since, now - self._since, stack.sums, self._aside))
            stack.sums, stack.late, self._aside = {}, {}, {}

    def _add_phase(self, frame: Frame, took: int, now: int) -> None:
        background = frame.stack.background
        self._emit(lines.phase(frame.name, frame.begin, took, background, frame.sums, frame.more))
        if not (frame.stack or background or self._batch):
            self._since = now
        if frame.announced or now >= self._due or self._size > _FULL:
            self._write(now)

    def _event(self, kind: str, now: int, **more: Any) -> None:
        self._emit(lines.event(kind, now, **more))
        self._write(now)

    def _emit(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _write(self, now: int) -> None:
        """Writes what there is, and what a disk that was full has cost."""
        if self._open:
            self._journal.write("".join(self._lines), now)
            if self._journal.lost and not self._journal.blocked:
                lost, self._journal.lost = self._journal.lost, 0
                self._journal.write(lines.event("lost", now, lines=lost), now)
        self._lines.clear()
        self._size = 0


def _nothing() -> None:
    pass
