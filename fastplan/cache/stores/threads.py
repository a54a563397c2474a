"""Daemon threads for calls that may hang. A thread that has finished a call waits for another one.

To start a thread takes a good part of the time of a small cache hit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread
from typing import Any

IDLE_SECONDS = 1.0
_idle: list[_Worker] = []  # append(), pop() and remove() are atomic


class _Worker:
    """A thread that runs one action after the other, until it has waited for IDLE_SECONDS."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[tuple[Callable[[], None], Any]] = SimpleQueue()
        Thread(target=self._work, name="fastplan-store", daemon=True).start()

    def begin(self, action: Callable[[], None], running: Any) -> None:
        """Runs an action, and releases the lock at its end."""
        self._actions.put((action, running))

    def _work(self) -> None:
        while True:
            try:
                self._run_next()
            except Empty:
                try:
                    _idle.remove(self)
                except ValueError:
                    continue  # a caller has just taken this thread
                return

    def _run_next(self) -> None:
        """Runs an action, and keeps nothing of it alive. Raises Empty if none has come in time."""
        action, running = self._actions.get(timeout=IDLE_SECONDS)
        action()
        _idle.append(self)  # before the caller goes on, whose next call finds this thread
        running.release()


def run(action: Callable[[], None], seconds: float) -> bool:
    """Runs an action in another thread, and waits for its end.

    Args:
        action: It must not raise.
        seconds: The longest wait. An action that takes longer continues in its thread.

    Returns:
        Whether the action has ended.

    Raises:
        RuntimeError: There can be no more threads, or the interpreter is exiting.
    """
    if sys.is_finalizing():
        raise RuntimeError("the interpreter is exiting")
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    running = Lock()  # an Event is made of three objects, and this is a good part of a call
    running.acquire()
    worker.begin(action, running)
    return running.acquire(timeout=min(seconds, TIMEOUT_MAX))


if hasattr(os, "register_at_fork"):
    # A forked process has none of these threads.
    os.register_at_fork(after_in_child=_idle.clear)
