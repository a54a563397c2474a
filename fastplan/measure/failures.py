"""Explains why a measurement ended early: the rank, the plan and the reason."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.processes import Heartbeat, status

_STOPPED = ("stopped", "tracing-stop")  # of psutil
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")
# In the stack of a rank that waits for others.
_WAITING = ("torch/distributed/", "torchrec/distributed/comm_ops", "torchrec/distributed/types")


class Failure(NamedTuple):
    """A plan that could not be measured.

    Attributes:
        plan: The number of the plan; None if nothing could be measured.
        round: The round.
        ranks: The responsible ranks; empty if unknown.
        reason: What happened.
    """

    plan: int | None
    round: int | None
    ranks: tuple[int, ...]
    reason: str

    def text(self, labels: tuple[str, ...]) -> str:
        """Returns the failure as one line."""
        where = labels[self.plan] if self.plan is not None else "before the first plan"
        who = f", rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}"
        return f"{where}{who if self.ranks else ''}: {self.reason}"


class Fault(NamedTuple):
    """An error that a rank has written to a file before it ended."""

    rank: int
    time: float
    kind: str
    text: str
    plan: int
    round: int
    stage: str

    def write(self, folder: Path) -> None:
        """Writes the error into a folder."""
        draft = folder / f".fault-{self.rank}.tmp"
        draft.write_text(json.dumps(self._asdict()))
        draft.replace(folder / f"fault-{self.rank}.json")


def read_faults(folder: Path) -> list[Fault]:
    """Returns all errors by time: later ones are often consequences of the first."""
    found = []
    for file in folder.glob("fault-*.json"):
        try:
            found.append(Fault(**json.loads(file.read_text())))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda fault: fault.time)


def explain_exit(
    exits: Mapping[int, int], beats: Mapping[int, Heartbeat], faults: list[Fault], oom_kills: int
) -> Failure:
    """Explains why ranks ended.

    Args:
        exits: Exit codes of failed ranks; negative is a signal.
        beats: The last heartbeats.
        faults: The errors that ranks have written.
        oom_kills: The number of processes that the kernel has killed for memory meanwhile.
    """
    noted = {fault.rank for fault in faults}
    # torchrun ends the others with SIGTERM; a rank without an error had no time to write one.
    silent = [rank for rank, code in exits.items() if rank not in noted and code != -signal.SIGTERM]
    if silent:
        rank = silent[0]
        beat = beats.get(rank)
        reason = _exit_reason(exits[rank], oom_kills)
        place = f" while {_place(beat.stage)}" if beat is not None else ""
        return _failure(beat, (rank,), f"{reason}{place}")
    if faults:
        first = faults[0]
        reason = f"{_fault_reason(first)} while {_place(first.stage)}"
        return Failure(*_turn(first.plan, first.round), (first.rank,), reason)
    return _failure(_latest(beats), (), "torchrun ended without naming a rank")


def explain_hang(
    beats: Mapping[int, Heartbeat], stacks: Mapping[int, str], ranks: int, seconds: float
) -> Failure:
    """Explains why a group made no progress.

    Args:
        beats: The last heartbeats.
        stacks: The stacks of ranks that could still write them.
        ranks: The expected number of ranks.
        seconds: The time without progress.
    """
    missing = [rank for rank in range(ranks) if rank not in beats]
    if missing:
        return _failure(None, tuple(missing), f"did not start within {seconds:g} s")
    least = min(beat.stages for beat in beats.values())
    behind = [rank for rank, beat in beats.items() if beat.stages == least]
    why = f"no progress for {seconds:g} s"
    if len(behind) == len(beats):
        # All are in the same stage: responsible is a rank that is stopped, or does not wait.
        behind = [
            rank for rank, beat in beats.items() if status(beat.pid) in (*_STOPPED, "disk-sleep")
        ]
        behind = behind or [rank for rank in stacks if not _waits(stacks[rank])]
    beat = beats[behind[0]] if behind else _latest(beats)
    assert beat is not None
    stopped = " (stopped)" if behind and status(beat.pid) in _STOPPED else ""
    unclear = "" if behind else "; no single rank is responsible"
    return _failure(beat, tuple(behind), f"{why} while {_place(beat.stage)}{stopped}{unclear}")


def _waits(stack: str) -> bool:
    return any(word in stack for word in _WAITING)


def _latest(beats: Mapping[int, Heartbeat]) -> Heartbeat | None:
    return max(beats.values(), key=lambda beat: beat.stages, default=None)


def _failure(beat: Heartbeat | None, ranks: tuple[int, ...], reason: str) -> Failure:
    turn = (None, None) if beat is None else _turn(beat.plan, beat.round)
    return Failure(*turn, ranks, reason)


def _turn(plan: int, round: int) -> tuple[int | None, int | None]:
    return (None, None) if plan < 0 else (plan, round)


def _exit_reason(code: int, oom_kills: int) -> str:
    if code == -signal.SIGKILL:
        if oom_kills:
            return "out of memory: killed by the kernel's OOM killer"
        return "killed by SIGKILL, for example by a container's memory limit"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with exit code {code}"


def _fault_reason(fault: Fault) -> str:
    text = f"{fault.kind}: {fault.text}" if fault.text else fault.kind
    memory = "OutOfMemory" in fault.kind or fault.kind == "MemoryError"
    if memory or any(word in fault.text.lower() for word in _MEMORY_WORDS):
        return f"out of memory: {text}"
    return text


def _place(stage: str) -> str:
    return {
        "start": "starting",
        "inputs": "generating inputs",
        "shard": "sharding the model",
        "warm-up": "warming up",
        "gather": "gathering results",
    }.get(stage, f"in {stage}")


def oom_kills() -> int:
    """Returns the number of processes that the kernel has killed for memory; 0 if unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def read_exit_codes(folder: Path) -> dict[int, int]:
    """Returns the exit codes by rank that the launcher has written."""
    found: dict[int, int] = {}
    for file in sorted(folder.glob("exits-*.json")):
        try:
            content: dict[str, Any] = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        found |= {int(rank): int(code) for rank, code in content.items()}
    return found
