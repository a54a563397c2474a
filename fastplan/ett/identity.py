"""Which process this is: rank and attempt by the launcher's environment, its host, its start."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass

from fastplan.ett.values import whole

# Unix seconds at which the launcher, or the scheduler's prologue, began. A job that is launched
# without it counts from the start of its first process.
LAUNCHED = "FASTPLAN_ETT_LAUNCHED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What the first line of a file says about its writer. Times are nanoseconds."""

    run: str
    attempt: int
    rank: int
    world: int
    host: str
    boot: str  # one monotonic clock for all processes of a host since it was booted
    pid: int
    launched: int | None  # wall clock
    process: int | None  # monotonic clock


def identify(
    *, rank: int | None = None, world: int | None = None, attempt: int | None = None
) -> Identity:
    """This process as torchrun's environment names it; arguments overrule it.

    Raises ValueError for arguments that are no numbers.
    """
    return Identity(
        run=os.environ.get("TORCHELASTIC_RUN_ID", "none"),
        attempt=_number("TORCHELASTIC_RESTART_COUNT", 0) if attempt is None else whole(attempt),
        rank=_number("RANK", 0) if rank is None else whole(rank),
        world=_number("WORLD_SIZE", 1) if world is None else whole(world),
        host=socket.gethostname(),
        boot=_boot(),
        pid=os.getpid(),
        launched=_launched(),
        process=_process_start(),
    )


def _number(variable: str, default: int) -> int:
    try:
        return whole(int(os.environ[variable]))
    except (KeyError, ValueError):
        return default


def _launched() -> int | None:
    try:
        return round(float(os.environ[LAUNCHED]) * 1e9)
    except (KeyError, ValueError, OverflowError):
        return None


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _process_start() -> int | None:
    """When the system started this process, to its clock tick; None where it doesn't say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The second field is the command in parentheses, which may hold anything.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.monotonic_ns() - round(max(0.0, age) * 1e9)
