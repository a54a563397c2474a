"""Starts processes that compare, one after the other, and ends them with this process."""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fastplan.model.log import escaped_logger
from fastplan.torchrec.plan_facts import PlanFacts

logger = escaped_logger("fastplan.shadow")

Answer = dict[str, Any]

# The child imports what this process would import.
_SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fastplan.torchrec.shadow.child import main; main(int(sys.argv[2]))"
)
# The child must not touch GPUs, patch TorchRec, record times or start comparisons.
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "FASTPLAN_ETT": "0",
    "FASTPLAN_PATCH": "0",
    "FASTPLAN_SHADOW": "0",
    "OMP_NUM_THREADS": "1",
}
_MOST_WAITING = 8
_JOB_ENDED = "the job ended before TorchRec's planner"
_SECONDS_TO_END = 5.0


def start(packed: bytes, ours: PlanFacts, done: Callable[[Answer], None]) -> None:
    """Compares in another process, and calls `done` with the answer from a thread.

    `packed` are the inputs of TorchRec's planner, `ours` is what fastplan made of them.
    """
    task = _Task(packed, ours, done)
    with _tasks.lock:
        if len(_tasks.present) > _MOST_WAITING:
            task.answer({"reason": f"{_MOST_WAITING} other comparisons wait already"})
            return
        _tasks.present.append(task)
    threading.Thread(target=task.run, name="fastplan-shadow", daemon=True).start()


class _Tasks:
    """The comparisons of this process."""

    def __init__(self) -> None:
        self.present: list[_Task] = []
        self.lock = threading.Lock()
        self.turn = threading.Lock()  # one child at a time

    def end(self) -> None:
        """Ends all of them."""
        with self.lock:
            present = list(self.present)
        for task in present:
            task.end()


class _Task:
    def __init__(self, packed: bytes, ours: PlanFacts, done: Callable[[Answer], None]) -> None:
        self._packed = packed
        self._ours = ours
        self._done = done
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> None:
        tasks = _tasks
        try:
            with tasks.turn:
                answer = {"reason": _JOB_ENDED} if self._ended else self._ask()
        except BaseException as error:
            answer = {"reason": f"TorchRec's planner can't be run: {type(error).__name__}: {error}"}
        with tasks.lock:
            tasks.present.remove(self)
        self.answer({"reason": _JOB_ENDED} if self._ended else answer)

    def answer(self, answer: Answer) -> None:
        """Hands the answer over; whatever that does, the job goes on."""
        try:
            self._done(answer)
        except Exception:
            logger.warning("fastplan: shadow: the report failed", exc_info=True)

    def end(self) -> None:
        self._ended = True
        process = self._process
        if process is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait(_SECONDS_TO_END)
        self.answer({"reason": _JOB_ENDED})

    def _ask(self) -> Answer:
        message = self._packed + pickle.dumps(self._ours, protocol=pickle.HIGHEST_PROTOCOL)
        # Without preexec_fn, Python starts it with vfork: no page of this process is shared.
        self._process = process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, json.dumps(sys.path), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
        )
        if self._ended:  # in the meantime
            process.kill()
        self._packed, self._ours = b"", {}  # they can be large
        output, errors = process.communicate(message)
        try:
            answer: Answer = json.loads(output.splitlines()[-1])
        except (IndexError, ValueError):
            return {"reason": _exit_reason(process.returncode, errors)}
        return answer


def _exit_reason(code: int, errors: bytes) -> str:
    what = "the process of TorchRec's planner"
    if code < 0:
        with suppress(ValueError):
            return f"{what} was killed ({signal.Signals(-code).name})"
        return f"{what} was killed (signal {-code})"
    lines = errors.decode(errors="replace").strip().splitlines()
    return f"{what} ended with exit code {code}" + (f": {lines[-1]}" if lines else "")


def _forget() -> None:
    """In a forked process: the children are not its own, and locks may be held by nobody."""
    global _tasks
    _tasks = _Tasks()


_tasks = _Tasks()
atexit.register(lambda: _tasks.end())
os.register_at_fork(after_in_child=_forget)
