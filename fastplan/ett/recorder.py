"""The recorder of a process: receives events and writes lines, cheap enough to run for months.

Consecutive steps are one line, which is written once a second at first and less often later. Short
phases during training are summed into that line. So a step costs one read of the clock and one
lock, and memory and disk do not grow with the number of events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastplan.ett.events import (
    Frame,
    Stack,
    Sums,
    add_to_sums,
    merge_sums,
    to_int,
    to_json,
    to_text,
    warn,
)
from fastplan.ett.journal import (
    Identity,
    Journal,
    begin_line,
    event_line,
    phase_line,
    rest_line,
    start_line,
    steps_line,
)

_SECOND = 1_000_000_000
_LONGEST_WAIT = 60 * _SECOND
_WAIT_SHARE = 1000  # a killed process loses at most one in so many of its attempt's steps
_SHORT_AT_START = _SECOND // 1000
_SHORT_IN_TRAINING = _SECOND
_MOST_DETAILED = 1000  # short phases whose details are written
_FULL = 1 << 16  # characters of lines that are written at once
_MARK_MASK = 255  # the end of every 256th step is written, to compare the clocks of hosts


class Recorder:
    """Records one process. Can be called from any thread, and never raises for any arguments.

    An event that can't be recorded is counted as a lost line, and the first one is logged.

    Args:
        journal: The file to write to.
        identity: The first line of the file.
        watched: When hooks were installed, on the recorder's clock.
        clock: A monotonic clock in nanoseconds.
        wall: The time of day in nanoseconds.
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
        self._busy = False  # the thread that holds the lock is recording, and was interrupted
        self._waiting: list[Callable[[], None]] = []  # events of such signal handlers
        self._local = threading.local()
        self._lines: list[str] = []
        self._size = 0
        self._open = True
        self._begun = self._since = clock()
        self._steady = False  # a step has ended
        self._short = _SHORT_AT_START
        self._batch = False  # the begin of the first batch is known
        self._next: int | None = None  # the number after the steps that are not written yet
        self._last: int | None = None
        self._first = self._first_begin = self._due = 0
        self._mark: list[int] = []
        self._detailed = 0  # short phases whose details were written
        self._warned = False  # that an event is not recorded
        self._trainer = self._stack()
        self._aside: Sums = {}  # short phases in the background
        self._emit(start_line(identity, self._begun, wall(), watched))
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
            self._run_locked(lambda: self._announce(frame, now))

    def end(self, frame: Frame) -> None:
        """Closes a phase. Phases may end in any order."""
        now = self._now()
        try:
            self._close(frame, now)
        except Exception as error:  # another thread has closed it as well
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
        if frame.announced or took >= self._short or self._keeps_details(frame):
            # Not under the lock: it may run code of the job.
            frame.more = to_json(frame.more) if frame.more else None
            self._run_locked(lambda: self._add_phase(frame, took, now))
        elif stack:
            parent = stack[-1]
            if parent.sums is None:
                parent.sums = {}
            add_to_sums(parent.sums, frame, took)
        elif stack.background:
            self._run_locked(lambda: add_to_sums(self._aside, frame, took))
        else:
            stack.add(frame, took, self._since)

    def _keeps_details(self, frame: Frame) -> bool:
        """Whether a short phase gets a line for its details, which only the first ones do."""
        if not frame.more or self._detailed >= _MOST_DETAILED:
            return False
        self._detailed += 1
        return True

    def add(self, name: str, begin: int, end: int, *, background: bool = False) -> None:
        """Records a phase that has ended already, within the open phases of this thread."""
        stack = self._stack()
        if stack and begin >= stack[-1].begin:
            stack[-1].inner += end - begin

        def write() -> None:
            self._emit(phase_line(name, begin, end - begin, background, None, None))
            if not (stack or background or self._batch):
                self._since = max(self._since, end)
            self._write(self._now())

        self._run_locked(write)

    def step(self, number: int) -> None:
        """Records the end of step `number`, and the begin of the next one."""
        now = self._now()
        with self._lock:  # not `_run_locked`: training waits for this method
            if self._busy:
                self._waiting.append(lambda: self._add_step(to_int(number), now))
                return
            self._busy = True
            try:
                if type(number) is not int:
                    number = to_int(number)
                if number == self._next and now < self._due:
                    self._next = number + 1
                    self._since = now
                    if not number & _MARK_MASK:
                        self._mark = [number, now]
                else:
                    self._add_step(to_int(number), now)
            except Exception as error:
                self._lose(error)
            finally:
                self._busy = False
            if self._waiting:
                self._run_locked(_no_op)

    def first_batch(self) -> None:
        """Records that training on the first batch begins."""
        if self._batch:
            return
        now = self._now()

        def write() -> None:
            self._batch = True
            self._since = now
            self._event("first_batch", now)

        self._run_locked(write)

    def checkpoint(self, step: int) -> None:
        """Records that all steps up to this one are saved, so a restart does not lose them."""
        self._run_locked(lambda: self._mark_end("checkpoint", step=to_int(step)))

    def failure(self, cause: str) -> None:
        """Records a failure."""
        text = to_text(cause)
        self._run_locked(lambda: self._mark_end("failure", cause=text))

    def identify(self, rank: int, world: int) -> None:
        """Records the rank, which may become known after the file was named."""
        self._run_locked(
            lambda: self._event("rank", self._now(), rank=to_int(rank), world=to_int(world))
        )

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Counts and logs an error in the block, so that a hook never stops the job."""
        try:
            yield
        except Exception as error:
            self._lose(error)

    @property
    def last_step(self) -> int | None:
        """The step that ended last; None before the first."""
        with self._lock:
            return self._last if self._next is None else self._next - 1

    def is_open(self, name: str | None = None) -> bool:
        """Whether this thread is in a phase, of the given name if there is one."""
        return any(name is None or frame.name == name for frame in self._stack())

    def in_background(self) -> bool:
        """Whether this thread is neither the main thread nor the one that trains."""
        return self._stack().background

    def stop(self) -> None:
        """Ends recording cleanly. Later calls are ignored."""
        self._run_locked(self._end)

    def abandon(self) -> None:
        """Drops the file and the lock in a forked child: both are its parent's."""
        self._lock = threading.RLock()
        self._open = self._busy = False
        self._waiting.clear()
        self._lines.clear()
        self._journal.abandon()

    def _run_locked(self, action: Callable[[], None]) -> None:
        """Runs an action under the lock; if a signal handler interrupts one, after that one."""
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
        if not self._warned:
            self._warned = True
            warn("%s: an event is not recorded: %s: %s", self.path, type(error).__name__, error)

    def _announce(self, frame: Frame, now: int) -> None:
        self._write_steps()  # so that the steps end where the phase begins
        self._emit(begin_line(frame.name, now, frame.stack.background))
        self._write(now)

    def _mark_end(self, kind: str, **more: Any) -> None:
        """Writes an event that ends the steps before it."""
        self._write_steps()
        now = self._now()
        self._write_rest(self._stack(), now)  # it may be the last event of the process
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
            background = threading.current_thread() is not threading.main_thread()
            self._local.stack = stack = Stack(background)
            return stack

    def _add_step(self, number: int, now: int) -> None:
        """Adds a step that is not simply the next one."""
        if not self._steady:
            self._steady = self._batch = True
            self._short = _SHORT_IN_TRAINING
            self._trainer = self._stack()
            self._trainer.background = False  # the phases of the thread that trains delay it
            self._mark = [number, now]
        elif self._next is not None and number != self._next:
            self._write_steps()
        if self._next is None:
            self._first, self._first_begin = number, self._since
        self._next = number + 1
        self._since = now
        if now >= self._due:
            # While the disk is full, the steps stay one line instead of becoming many.
            if self._journal.blocked:
                self._write(now)
            if not self._journal.blocked:
                self._write_steps()
                self._write(now)
            wait = (now - self._begun) // _WAIT_SHARE
            self._due = now + min(_LONGEST_WAIT, max(_SECOND, wait))

    def _write_steps(self) -> None:
        """Emits a line for the steps since the last one."""
        if self._next is None:
            return
        self._last = self._next - 1
        stack = self._stack()
        # Another thread may be changing its sums right now: they go into its next line.
        sums: Sums = {}
        if stack is self._trainer:
            stack.catch_up(self._since)
            sums = stack.sums
        self._emit(
            steps_line(
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
        """Emits a line for the short phases after the last step, if `stack` is the trainer's."""
        if stack is not self._trainer:
            return
        merge_sums(stack.sums, stack.late)
        if stack.sums or self._aside:
            self._emit(rest_line(self._since, now - self._since, stack.sums, self._aside))
            stack.sums, stack.late, self._aside = {}, {}, {}

    def _add_phase(self, frame: Frame, took: int, now: int) -> None:
        background = frame.stack.background
        self._emit(phase_line(frame.name, frame.begin, took, background, frame.sums, frame.more))
        if not (frame.stack or background or self._batch):
            self._since = now
        if frame.announced or now >= self._due or self._size > _FULL:
            self._write(now)

    def _event(self, kind: str, now: int, **more: Any) -> None:
        self._emit(event_line(kind, now, **more))
        self._write(now)

    def _emit(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _write(self, now: int) -> None:
        """Writes the emitted lines, and the number of lines that a full disk has lost."""
        if self._open:
            self._journal.write("".join(self._lines), now)
            if self._journal.lost and not self._journal.blocked:
                lost, self._journal.lost = self._journal.lost, 0
                self._journal.write(event_line("lost", now, lines=lost), now)
        self._lines.clear()
        self._size = 0


def _no_op() -> None:
    pass
