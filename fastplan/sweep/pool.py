"""The workers of a sweep: new processes, or an executor of the caller."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context

from fastplan.sweep.rows import Row
from fastplan.sweep.sweep import SweepError
from fastplan.sweep.work import Task, prepare_worker, work

_GAVE_UP = "the executor failed; finished cells are kept"


class Workers(ABC):
    """The interface of a sweep's workers, as a context manager that closes them."""

    count: int | None = None  # None if unknown
    window: int  # the limit of tasks that run or wait

    @abstractmethod
    def submit(self, task: Task) -> Future[list[Row]]:
        """Starts a task.

        Raises:
            BrokenExecutor: The workers are gone.
        """

    @abstractmethod
    def restart(self, error: BrokenExecutor) -> None:
        """Replaces broken workers.

        Raises:
            SweepError: The workers can't be replaced.
        """

    @abstractmethod
    def kill(self) -> None:
        """Stops without waiting for running tasks."""

    @abstractmethod
    def close(self) -> None:
        """Cancels tasks that have not started, and waits for running tasks."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessPool(Workers):
    """New processes, which inherit nothing from this one: no torch, no threads, no locks."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise SweepError(f"`executor` must be at least 1 process, not {count}")
        self.count = count
        # One more task per worker, so that no worker waits for the next one.
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


class GivenExecutor(Workers):
    """An executor of the caller. It is neither restarted nor shut down."""

    window = 1000  # enough for a large cluster, and few enough to wait for

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
        """Does nothing: running tasks continue, but the sweep does not wait for them."""

    def close(self) -> None:
        """Does nothing, because the executor belongs to the caller."""


def usable_cores() -> int:
    """Returns the number of cores that this process may use, which a batch system may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
