"""Where a sweep is worked on: processes of its own, or an executor that it was given."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context

from fastplan.sweep.rows import Row
from fastplan.sweep.sweep import SweepError
from fastplan.sweep.work import Task, prepare_worker, work

_GAVE_UP = "the executor gave up; what was done by then is kept"


class Workers(ABC):
    """What a sweep needs of an executor; a context that ends with the work."""

    count: int | None = None  # None where it is not known
    window: int  # tasks to have under way at most

    @abstractmethod
    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task. Raises BrokenExecutor when the workers are gone."""

    @abstractmethod
    def restart(self, error: BrokenExecutor) -> None:
        """Brings new workers in place of broken ones, or raises SweepError."""

    @abstractmethod
    def kill(self) -> None:
        """Ends without waiting for what is under way."""

    @abstractmethod
    def close(self) -> None:
        """Drops what has not been started, and waits for the rest."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Processes(Workers):
    """Fresh processes, which hold nothing of this one: neither torch nor threads nor locks."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise SweepError(f"`executor` must be at least 1 process, not {count}")
        self.count = count
        # One more task each, so that nobody waits for the next.
        self.window = 2 * count
        self._others = set(active_children())
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.count, mp_context=get_context("spawn"), initializer=prepare_worker
        )

    def submit(self, task: Task) -> Future[list[Row]]:
        return self._pool.submit(work, task)

    def restart(self, error: BrokenExecutor) -> None:
        self.close()
        self._pool = self._start()

    def kill(self) -> None:
        for process in set(active_children()) - self._others:
            process.kill()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class Given(Workers):
    """Somebody else's executor: it is neither restarted nor shut down."""

    window = 1000  # enough for a large cluster, and few enough to look through

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, task: Task) -> Future[list[Row]]:
        try:
            return self._executor.submit(work, task)
        except RuntimeError as error:  # broken, or shut down
            raise SweepError(f"{_GAVE_UP}: {error}") from error

    def restart(self, error: BrokenExecutor) -> None:
        raise SweepError(f"{_GAVE_UP}: {error}") from error

    def kill(self) -> None:
        """What is under way there goes on; nobody waits for it."""

    def close(self) -> None:
        """It is not this sweep's to close."""


def usable_cores() -> int:
    """Cores that this process may run on: a batch system may have given it a few of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
