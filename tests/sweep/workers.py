"""Workers that misbehave, for processes that a sweep starts. Models say by their names how."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fastplan.sweep.rows import Row
from fastplan.sweep.work import Task, work

GATES = "FASTPLAN_TEST_GATES"


def deadly(task: Task) -> list[Row]:
    """Dies of cells with a batch of 13, as if it had run out of memory."""
    if any(cell.batch == 13 for cell in task.cells):
        os.kill(os.getpid(), signal.SIGKILL)
    return work(task)


def raising(task: Task) -> list[Row]:
    """Raises for tasks with a batch of 13, as an executor does that lost its worker."""
    if any(cell.batch == 13 for cell in task.cells):
        raise ConnectionError("the worker\nis gone")
    return work(task)


def gated(task: Task) -> list[Row]:
    """Tells through one pipe that a task has begun, and waits at another to be let go on, unless
    the gates are open for all."""
    gates = Path(os.environ[GATES])
    if (gates / "open").exists():
        return work(task)
    with open(gates / "begun", "wb", buffering=0) as begun:
        begun.write(b".")
        with open(gates / "go", "rb", buffering=0) as go:
            go.read(1)
    return work(task)
