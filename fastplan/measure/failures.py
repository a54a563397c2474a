"""Why a measurement ended early: the rank, the plan and the reason."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.processes import state
from fastplan.measure.progress import Beat

_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")
# Where a rank waits for others, as its stack shows it.
_WAITING = ("torch/distributed/", "torchrec/distributed/comm_ops", "torchrec/distributed/types")


class Failure(NamedTuple):
    """A plan that could not be measured; without a plan, nothing could."""

    plan: int | None
    round: int | None
    ranks: tuple[int, ...]  # those to blame; empty if that can't be told
    reason: str

    def text(self, labels: tuple[str, ...]) -> str:
        """In one line."""
        where = labels[self.plan] if self.plan is not None else "before the first plan"
        who = f", rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}"
        return f"{where}{who if self.ranks else ''}: {self.reason}"


class Fault(NamedTuple):
    """An error that a rank has noted before it ended."""

    rank: int
    time: float
    kind: str
    text: str
    plan: int
    round: int
    stage: str

    def write(self, folder: Path) -> None:
        draft = folder / f".fault-{self.rank}.tmp"
        draft.write_text(json.dumps(self._asdict()))
        draft.replace(folder / f"fault-{self.rank}.json")


def read_faults(folder: Path) -> list[Fault]:
    """All noted errors, the first one first: others often follow from it."""
    found = []
    for file in folder.glob("fault-*.json"):
        try:
            found.append(Fault(**json.loads(file.read_text())))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda fault: fault.time)


def died(
    exits: Mapping[int, int], beats: Mapping[int, Beat], faults: list[Fault], oom_kills: int
) -> Failure:
    """What to make of ranks that ended.

    Args:
        exits: exit codes by rank of those that did not end well; negative is a signal.
        oom_kills: processes that the kernel has killed for memory meanwhile.
    """
    noted = {fault.rank for fault in faults}
    # torchrun ends the others with SIGTERM; who notes nothing has had no chance to.
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


def hung(
    beats: Mapping[int, Beat], stacks: Mapping[int, str], ranks: int, seconds: float
) -> Failure:
    """What to make of a group that made no progress.

    `stacks` are those of ranks that answered when they were asked for it.
    """
    missing = [rank for rank in range(ranks) if rank not in beats]
    if missing:
        return _failure(None, tuple(missing), f"did not start within {seconds:g} s")
    least = min(beat.stages for beat in beats.values())
    behind = [rank for rank, beat in beats.items() if beat.stages == least]
    why = f"no progress for {seconds:g} s"
    if len(behind) == len(beats):
        # All are in the same stage: to blame is who can't answer, or does not wait for others.
        behind = [rank for rank, beat in beats.items() if state(beat.pid) in ("T", "t", "D")]
        behind = behind or [rank for rank in stacks if not _waits(stacks[rank])]
    beat = beats[behind[0]] if behind else _latest(beats)
    assert beat is not None
    stopped = " (stopped)" if behind and state(beat.pid) in ("T", "t") else ""
    told = "" if behind else "; no rank stands out"
    return _failure(beat, tuple(behind), f"{why} while {_place(beat.stage)}{stopped}{told}")


def _waits(stack: str) -> bool:
    return any(word in stack for word in _WAITING)


def _latest(beats: Mapping[int, Beat]) -> Beat | None:
    return max(beats.values(), key=lambda beat: beat.stages, default=None)


def _failure(beat: Beat | None, ranks: tuple[int, ...], reason: str) -> Failure:
    turn = (None, None) if beat is None else _turn(beat.plan, beat.round)
    return Failure(*turn, ranks, reason)


def _turn(plan: int, round: int) -> tuple[int | None, int | None]:
    return (None, None) if plan < 0 else (plan, round)


def _exit_reason(code: int, oom_kills: int) -> str:
    if code == -signal.SIGKILL:
        if oom_kills:
            return "out of memory: killed by the kernel's OOM killer"
        return "killed by SIGKILL, as for instance a container's memory limit does it"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"ended with exit code {code}"


def _fault_reason(fault: Fault) -> str:
    told = f"{fault.kind}: {fault.text}" if fault.text else fault.kind
    memory = "OutOfMemory" in fault.kind or fault.kind == "MemoryError"
    if memory or any(word in fault.text.lower() for word in _MEMORY_WORDS):
        return f"out of memory: {told}"
    return told


def _place(stage: str) -> str:
    return {
        "start": "starting",
        "inputs": "drawing inputs",
        "shard": "sharding the model",
        "warm-up": "warming up",
        "gather": "gathering results",
    }.get(stage, f"in {stage}")


def oom_kills() -> int:
    """Processes that the kernel has killed for memory since it started; 0 where it doesn't tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def exits_of(folder: Path) -> dict[int, int]:
    """Exit codes by rank as the launcher has noted them."""
    try:
        content: dict[str, Any] = json.loads((folder / "exits.json").read_text())
    except (OSError, ValueError):
        return {}
    return {int(rank): int(code) for rank, code in content.items()}
