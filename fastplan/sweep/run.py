"""Runs a sweep on any executor.

A sweep can be killed and resumed, and a failing cell does not stop the others.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from itertools import groupby
from threading import current_thread, main_thread
from typing import Any

from fastplan.cache.stores import kind_of, open_store
from fastplan.model.log import escaped_logger
from fastplan.model.references import check_trust
from fastplan.spec.lower import check_trusted
from fastplan.sweep.plan_files import plan_file
from fastplan.sweep.pool import GivenExecutor, ProcessPool, Workers, usable_cores
from fastplan.sweep.rows import ResultsFile, Row, SweepResult, row_of
from fastplan.sweep.sweep import Cell, Sweep, SweepError, cells
from fastplan.sweep.work import Task, pack_model, reason

_log = escaped_logger(__name__)

_MOST_CELLS = 8  # per task, so that a lost task costs little
_TASKS_PER_WORKER = 8  # so that all workers finish at about the same time

_KILLED = (
    "its worker process died; if it ran out of memory, start fewer at a time or plan it elsewhere"
)


def run_sweep(
    sweep: Sweep,
    cache: str | os.PathLike[str] | None = None,
    *,
    results: str | os.PathLike[str] | None = None,
    executor: Executor | int | None = None,
    shard: tuple[int, int] = (0, 1),
    progress: Callable[[Row], None] | None = None,
    trust: bool = False,
    plans: str | os.PathLike[str] | None = None,
) -> SweepResult:
    """Plans every cell of a sweep. A cell that fails gets a row with an `error`.

    Args:
        sweep: The sweep.
        cache: A plan cache, in which plans are looked up and stored.
        results: A file for the rows, see ResultsFile. Cells that are in it are not planned again,
            unless their plan must still be stored in the cache.
        executor: An executor, such as a Dask client's `get_executor()`, or the number of processes
            to start; None: one per core.
        shard: (i, n), i counted from 0: plan only every n-th cell.
        progress: Called with each new row.
        trust: Whether workers import the costs and objectives that specs name, see `lower`.
        plans: A folder for the plans: a plan file and a page for each cell that fits, named by its
            id. It is created. Cells whose files are in it and whose rows are in `results` are not
            planned again.

    Raises:
        CodeNotTrusted: A spec needs `trust`.
        SweepError: The executor failed.
        OSError: Rows can't be written, or the folder for plans can't be created.
        KeyboardInterrupt: The sweep was interrupted. Running cells are finished and stored first.
    """
    begin = time.perf_counter()
    check_trust(trust)
    for model in sweep.models if not trust else ():
        check_trusted(model)
    asked = cells(sweep, shard)
    keeper = _ResultCollector(results, progress)
    folder = None if plans is None else os.path.abspath(plans)
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
    # Results don't contain the code of custom functions, which may have changed.
    custom = {m.name for m in sweep.models if m.shard_cost is not None or m.objective is not None}
    left = [
        cell
        for cell in asked
        if cell.model in custom
        or not keeper.has_answer(cell, cached=cache is not None, folder=folder)
    ]
    count = len(left)
    if left:
        if isinstance(executor, Executor):
            workers: Workers = GivenExecutor(executor)
        else:
            workers = ProcessPool(min(executor or usable_cores(), count))
        common = _where(cache), sweep.optimization, os.urandom(8).hex(), trust, folder
        tasks = _tasks(sweep, left, workers.count, common)
        with workers:
            _Runner(tasks, workers, keeper).run()
    return SweepResult(
        rows=tuple(keeper.rows[cell.id] for cell in asked),
        known=len(asked) - count,
        seconds=time.perf_counter() - begin,
        global_batch=sweep.global_batch,
        prices={sku.name: sku.price for sku in sweep.skus if sku.price is not None},
    )


class _ResultCollector:
    """Writes new rows to the file and passes them to `progress`."""

    def __init__(
        self,
        results: str | os.PathLike[str] | None,
        progress: Callable[[Row], None] | None,
    ) -> None:
        self._file = None if results is None else ResultsFile(results)
        self._progress = progress
        self._before: dict[str, Row] = {}
        if self._file is not None:
            self._before = self._file.read()
            self._file.append(())  # fails early if the file can't be written
        self.rows: dict[str, Row] = {}

    def has_answer(self, cell: Cell, *, cached: bool, folder: str | None = None) -> bool:
        """Returns whether the file has the answer to a cell.

        A plan that must be in a cache is looked up there, and a failed cell is planned again. So is
        a cell whose plan file must be in `folder` and is not.
        """
        row = self._before.get(cell.id)
        if row is None or row.fits is None or (row.fits and cached):
            return False
        if row.fits and folder is not None and not os.path.exists(plan_file(folder, cell.id)):
            return False
        # The row may be from another sweep that counts the batch differently.
        self._report(row_of(cell, **row.answer()))
        return True

    def keep(self, rows: list[Row]) -> None:
        """Writes new rows to the file and reports all of them."""
        new = [row for row in rows if not self._is_known(row)]
        if self._file is not None and new:
            self._file.append(new)
        for row in rows:
            self._report(row)

    def _report(self, row: Row) -> None:
        self.rows[row.id] = row
        if self._progress is not None:
            self._progress(row)

    def _is_known(self, row: Row) -> bool:
        before = self._before.get(row.id)
        return before is not None and before.same_answer(row)


class _Runner:
    """Keeps workers busy until all tasks are done.

    A failed task is run again cell by cell, to find the failing cell. If the whole pool broke, each
    running task is a suspect and runs alone in the new pool.
    """

    def __init__(self, tasks: Iterator[Task], workers: Workers, keeper: _ResultCollector) -> None:
        self._tasks = tasks
        self._again: deque[Task] = deque()
        self._suspects: deque[Task] = deque()
        self._on_trial: Task | None = None  # the suspect that runs alone
        self._under_way: dict[Future[list[Row]], Task] = {}
        self._workers = workers
        self._keeper = keeper

    def run(self) -> None:
        """Runs all tasks. Raises KeyboardInterrupt after an interrupt."""
        try:
            while self._submit():
                done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
                for future in [each for each in self._under_way if each in done]:
                    with _uninterrupted():
                        self._take(future)
        except KeyboardInterrupt:
            self._stop()
            raise

    def _submit(self) -> bool:
        """Submits tasks up to the limit; returns False if no task is running."""
        while self._has_room():
            self._on_trial = self._suspects.popleft() if self._suspects else None
            task = self._on_trial or self._next()
            if task is None:
                break
            try:
                with _uninterrupted():
                    self._under_way[self._workers.submit(task)] = task
            except BrokenExecutor as error:
                self._suspects.appendleft(task)
                self._start_again(error)
        return bool(self._under_way)

    def _has_room(self) -> bool:
        most = 1 if self._suspects or self._on_trial else self._workers.window
        return len(self._under_way) < most

    def _next(self) -> Task | None:
        return self._again.popleft() if self._again else next(self._tasks, None)

    def _take(self, future: Future[list[Row]]) -> None:
        task = self._under_way.pop(future, None)
        if task is None:  # the pool broke while it ran, so it is a suspect
            return
        try:
            rows = future.result()
        except BrokenExecutor as error:
            if task is self._on_trial:
                self._keeper.keep([row_of(task.cells[0], error=_KILLED)])
            else:
                self._suspects.extend(_alone(task))
            self._start_again(error)
        except Exception as error:
            if len(task.cells) == 1:
                self._keeper.keep([row_of(task.cells[0], error=reason(error))])
            else:
                self._again.extend(_alone(task))
        else:
            self._keeper.keep(rows)

    def _start_again(self, error: BrokenExecutor) -> None:
        for future, task in self._under_way.items():
            if future.done() and future.exception() is None:
                self._keeper.keep(future.result())
            else:
                self._suspects.extend(_alone(task))
        self._under_way.clear()
        self._workers.restart(error)

    def _stop(self) -> None:
        """Waits for running tasks and stores their rows; a second interrupt stops at once."""
        try:
            _log.warning("interrupted: finishing running cells; press Ctrl-C again to stop at once")
            for future in self._under_way:
                future.cancel()
            wait(self._under_way)
        except KeyboardInterrupt:
            self._workers.kill()
        for future in self._under_way:
            if future.done() and not future.cancelled():
                with suppress(Exception):
                    self._keeper.keep(future.result())


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C until the block ends, so that no task is lost between two places.

    Only the main thread can be interrupted.
    """
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    pending: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pending.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pending:
            signal.raise_signal(signal.SIGINT)


def _tasks(
    sweep: Sweep, left: list[Cell], workers: int | None, common: tuple[Any, ...]
) -> Iterator[Task]:
    """Yields the tasks. `common` are the fields that all of them share."""
    models = {model.name: model for model in sweep.models}
    size = -(-len(left) // (_TASKS_PER_WORKER * (workers or 32)))
    size = min(size, _MOST_CELLS)
    for name, group in groupby(left, lambda cell: cell.model):
        packed = pack_model(models[name])
        of_model = tuple(group)
        for i in range(0, len(of_model), size):
            yield Task(packed, of_model[i : i + size], *common)


def _alone(task: Task) -> list[Task]:
    return [task._replace(cells=(cell,)) for cell in task.cells]


def _where(cache: str | os.PathLike[str] | None) -> str | None:
    """Returns the absolute place of the cache: workers may have another working directory."""
    if cache is None:
        return None
    where = os.fspath(cache)
    try:
        return open_store(where).describe() if kind_of(where) == "directory" else where
    except ValueError as error:
        raise SweepError(f"`cache`: {error}") from error
