"""The work of a sweep's worker: plans a few cells of one model."""

from __future__ import annotations

import os
import pickle
import signal
import time
import zlib
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from fastplan.model.log import escaped_logger
from fastplan.spec.model import ModelSpec
from fastplan.sweep.rows import Row, row_of
from fastplan.sweep.sweep import Cell, in_precision, pinned, variant

if TYPE_CHECKING:
    from fastplan.cache.plan_cache import Cache
    from fastplan.engine.optimize import Optimize
    from fastplan.planning.search import Result

_log = escaped_logger(__name__)

_STORE_TIMEOUT = 30.0  # seconds; longer than elsewhere, because no user waits for a single plan


class Task(NamedTuple):
    """Cells of one model, for a worker."""

    model: bytes
    cells: tuple[Cell, ...]
    cache: str | None
    optimization: Optimize | None = None
    run: str = ""  # unique, because Dask reuses the result of an equal task
    trust: bool = False  # whether to import the functions that the model names
    plans: str | None = None  # the folder for plan files


def pack_model(model: ModelSpec) -> bytes:
    """Returns the model as bytes for a task."""
    return zlib.compress(pickle.dumps(pinned(model), protocol=pickle.HIGHEST_PROTOCOL), 1)


def work(task: Task) -> list[Row]:
    """Returns the rows of a task's cells. An error is recorded in the row of its cell."""
    cache = _open_cache(task.cache)
    return [_row(task, cell, cache) for cell in task.cells]


def reason(error: BaseException) -> str:
    """Returns an error in one line; the type is omitted for fastplan's own errors."""
    text = " ".join(str(error).split())
    if type(error).__module__.partition(".")[0] == "fastplan":
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def prepare_worker() -> None:
    """Ignores interrupts, which the parent process handles, and ends when the parent ends."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)


# Tasks of one model are consecutive, so a process unpacks each model once.
@lru_cache(maxsize=4)
def _model(packed: bytes, precision: str) -> ModelSpec:
    model: ModelSpec = pickle.loads(zlib.decompress(packed))
    return in_precision(model, precision)


def _open_cache(where: str | None) -> Cache | None:
    """Opens the cache for each task, because a cache object does not retry a failed store."""
    if where is None:
        return None
    from fastplan.cache.plan_cache import open_cache

    return open_cache(where, timeout=_STORE_TIMEOUT)


def _row(task: Task, cell: Cell, cache: Cache | None) -> Row:
    from fastplan.model.job import DoesNotFit
    from fastplan.planning.specs import plan_job
    from fastplan.spec.lower import lower

    begin = time.perf_counter()
    try:
        model = _model(task.model, cell.precision)
        job = lower(variant(model, cell), trust=task.trust)
        result = plan_job(job, cache=cache, optimize=task.optimization)
        answer = _facts(result)
        if task.plans is not None and result.record is not None:
            _write_files(task.plans, cell, result)
    except DoesNotFit as error:
        answer = {"fits": False, "shortage": reason(error)}
    except Exception as error:  # a bad cell must not stop the others
        answer = {"error": reason(error)}
    return row_of(cell, **answer, seconds=round(time.perf_counter() - begin, 6))


def _write_files(folder: str, cell: Cell, result: Result) -> None:
    """Writes a cell's plan. If the disk is full, the cell still has an answer."""
    from fastplan.sweep.plan_files import write_files

    try:
        write_files(folder, cell, result)
    except OSError as error:
        _log.warning("fastplan: the plan of %s can't be written: %s", cell, error)


def _facts(result: Result) -> dict[str, Any]:
    from fastplan.model.job import SpecJob
    from fastplan.sweep.memory import explain_shortage, memory_of

    facts: dict[str, Any] = {
        "key": result.key.fingerprint,
        "cache": result.cache.status,
        "warning": result.cache.reason if result.cache.status == "failed" else None,
    }
    if result.record is None:
        lack, words = explain_shortage(result)
        return {**facts, "fits": False, **(lack or {}), "shortage": words}
    assert isinstance(result.job, SpecJob)
    memory = memory_of(result.job, result.record)
    rating, bound = result.record.rating, result.lower_bound
    known = {"rating": rating, "lower_bound": bound, "step": result.step and result.step.ms}
    return {**facts, "fits": True, **known, **memory}
