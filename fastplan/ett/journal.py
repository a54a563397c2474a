"""The file of a process: who writes it, its lines, and the writer that only appends whole lines."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple

from fastplan.ett.events import Sums, to_int, warn
from fastplan.ett.labels import job_labels

# Unix seconds at which the launcher, or the scheduler's prologue, began. Without it, Slurm and
# torchrun are asked, and else a job counts from the start of its first process.
LAUNCHED = "FASTPLAN_ETT_LAUNCHED"
SUFFIX = ".ett.jsonl"
FORMAT = 1
HELD = 1 << 16  # bytes kept in memory while the disk is full
_RETRY_INTERVAL = 1_000_000_000  # nanoseconds between two attempts to write to a full disk
_MOST_NAMES = 1000

_quoted: dict[str, str] = {}


class Identity(NamedTuple):
    """The process that writes a file, as its first line says. Times are nanoseconds."""

    run: str
    attempt: int
    rank: int
    world: int
    host: str
    boot: str  # all processes of a host share a monotonic clock until it boots again
    pid: int
    launched: int | None  # wall clock
    process: int | None  # monotonic clock
    labels: dict[str, str]


def identify(
    *,
    rank: int | None = None,
    world: int | None = None,
    attempt: int | None = None,
    labels: Any = None,
) -> Identity:
    """Returns the identity of this process from torchrun's environment.

    Args:
        rank: Overrides RANK.
        world: Overrides WORLD_SIZE.
        attempt: Overrides TORCHELASTIC_RESTART_COUNT.
        labels: Labels of the job; see `labels`.

    Raises:
        ValueError: if an argument is not a whole number.
    """
    return Identity(
        run=os.environ.get("TORCHELASTIC_RUN_ID", "none"),
        attempt=_number("TORCHELASTIC_RESTART_COUNT", 0) if attempt is None else to_int(attempt),
        rank=_number("RANK", 0) if rank is None else to_int(rank),
        world=_number("WORLD_SIZE", 1) if world is None else to_int(world),
        host=socket.gethostname(),
        boot=_boot(),
        pid=os.getpid(),
        launched=_launched(),
        process=_process_start(),
        labels=job_labels(labels),
    )


def _number(variable: str, default: int) -> int:
    try:
        return to_int(int(os.environ[variable]))
    except (KeyError, ValueError):
        return default


def _launched() -> int | None:
    """When the launch began: as given, as Slurm says, or the begin of torchrun's agent."""
    for variable in (LAUNCHED, *(["SLURM_JOB_START_TIME"] if _is_first_step() else [])):
        try:
            return round(float(os.environ[variable]) * 1e9)
        except (KeyError, ValueError, OverflowError):
            continue
    return _agent_start() if "TORCHELASTIC_RUN_ID" in os.environ else None


def _is_first_step() -> bool:
    """Whether Slurm started this process at the begin of the job, and not after another step."""
    return os.environ.get("SLURM_STEP_ID", "0") in ("0", "4294967291")  # the latter: sbatch


def _agent_start() -> int | None:
    """The time of day at which torchrun's agent, the parent of this process, was started."""
    age = _process_age(f"/proc/{os.getppid()}/stat")
    return None if age is None else time.time_ns() - age


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _process_start() -> int | None:
    """When the system started this process, to its clock tick; None if it is not known."""
    age = _process_age("/proc/self/stat")
    return None if age is None else time.monotonic_ns() - age


def _process_age(path: str) -> int | None:
    """Nanoseconds since a process was started; None if they are not known."""
    try:
        with open(path, "rb") as file:
            # The second field is the command in parentheses, which may contain anything.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return round(max(0.0, age) * 1e9)


class Journal:
    """Appends lines to a new file.

    Every write is one system call with whole lines on a descriptor that appends: a killed process
    leaves at most one incomplete line, the last. When the disk is full, up to HELD bytes are kept
    in memory and written later; lines beyond that are counted in `lost`. If the job closes the
    descriptor, recording ends, because the number may be another file's by then.

    Raises:
        OSError: if the file can't be created. Later calls never raise.
    """

    def __init__(self, directory: str, identity: Identity) -> None:
        os.makedirs(directory, exist_ok=True)
        name = f"attempt{identity.attempt:03}.rank{identity.rank:05}.{secrets.token_hex(4)}{SUFFIX}"
        self.path = os.path.join(directory, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file: int | None = os.open(self.path, flags, 0o644)
        self._file_id = _file_id(self._file)
        self._held = b""
        self._try_at = 0
        self.lost = 0
        self._warned = self._warned_removed = False

    @property
    def blocked(self) -> bool:
        """Whether lines wait because the last write failed."""
        return bool(self._held)

    def write(self, lines: str, now: int) -> None:
        """Appends lines, each with its line end, after those that still wait."""
        waiting = self._held + lines.encode("ascii")
        file = self._open()
        if file is None:
            return
        if not self._held or now >= self._try_at:
            try:
                while waiting:
                    waiting = waiting[os.write(file, waiting) :]
            except OSError as error:
                self._try_at = now + _RETRY_INTERVAL
                self._warn(error)
        self._held = self._within_limit(waiting)

    def close(self) -> None:
        """Tries to write a last time, and closes the file."""
        self._try_at = 0
        self.write("", 0)
        self.abandon()

    def abandon(self) -> None:
        """Closes the file without writing."""
        file = self._open()
        if file is not None:
            with suppress(OSError):
                os.close(file)
            self._file = None

    def _open(self) -> int | None:
        """The descriptor, as long as it is this file's."""
        if self._file is not None and _file_id(self._file) != self._file_id:
            self._file = None
            self._held = b""
            warn("%s: recording ended because the job closed the file", self.path)
        if self._file is not None and not self._warned_removed and _is_removed(self._file):
            self._warned_removed = True
            warn("%s: was removed while the job runs: its record will be lost", self.path)
        return self._file

    def _within_limit(self, waiting: bytes) -> bytes:
        """The first of the waiting lines. The end of a line that is half written stays first."""
        if len(waiting) <= HELD:
            return waiting
        end = waiting.rfind(b"\n", 0, HELD) + 1 or waiting.find(b"\n") + 1
        self.lost += waiting.count(b"\n", end)
        return waiting[:end]

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warn("%s can't be written for now: %s", self.path, error)


def _file_id(file: int) -> tuple[int, int] | None:
    """Device and inode of an open descriptor; None if it is not open."""
    try:
        found = os.fstat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_removed(file: int) -> bool:
    """Whether no name of an open file is left, for example because its directory was removed."""
    try:
        return os.fstat(file).st_nlink == 0
    except OSError:
        return False


def why_not_writable(directory: str) -> str | None:
    """Returns why no file can be created in a directory, without writing anything; or None."""
    place = os.path.abspath(directory)
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is not a directory"
    return None if os.access(place, os.W_OK | os.X_OK) else f"{place} can't be written to"


# Lines are JSON that is written by hand: it takes a third of the time of json.dumps.


def start_line(identity: Identity, t: int, wall: int, watched: int | None) -> str:
    """The first line. `t` and `watched` are the recorder's clock, `wall` the time of day at `t`."""
    head = {"e": "start", "format": FORMAT, "t": t, "wall": wall, "watched": watched}
    who = identity._asdict()
    if not identity.labels:
        del who["labels"]
    return json.dumps({**head, **who}) + "\n"


def begin_line(name: str, t: int, background: bool) -> str:
    """A phase that has begun."""
    return f'{{"e":"begin","name":{_quote(name)},"t":{t}{_background(background)}}}\n'


def phase_line(
    name: str, t: int, d: int, background: bool, sums: Sums | None, more: dict[str, Any] | None
) -> str:
    """A phase that has ended."""
    details = f',"more":{json.dumps(more)}' if more else ""
    return (
        f'{{"e":"phase","name":{_quote(name)},"t":{t},"d":{d}'
        f"{_background(background)}{_sums('in', sums)}{details}}}\n"
    )


def steps_line(
    numbers: tuple[int, int],
    times: tuple[int, int],
    wall: int,
    sums: tuple[Sums, Sums],
    mark: list[int],
) -> str:
    """Consecutive steps.

    Args:
        numbers: The first and the last step.
        times: Begin and duration.
        wall: The time of day when the line is written.
        sums: Short phases during the steps, of the thread that trains and in the background.
        mark: A step and its end, or empty.
    """
    marked = f',"mark":[{mark[0]},{mark[1]}]' if mark else ""
    return (
        f'{{"e":"steps","first":{numbers[0]},"last":{numbers[1]},"t":{times[0]},"d":{times[1]}'
        f',"wall":{wall}{_sums("in", sums[0])}{_sums("aside", sums[1])}{marked}}}\n'
    )


def rest_line(t: int, d: int, sums: Sums, aside: Sums) -> str:
    """Short phases after the last step."""
    return f'{{"e":"rest","t":{t},"d":{d}{_sums("in", sums)}{_sums("aside", aside)}}}\n'


def event_line(kind: str, t: int, **more: Any) -> str:
    """An event at one time."""
    return json.dumps({"e": kind, "t": t, **more}) + "\n"


def _quote(text: str) -> str:
    """A JSON string in ASCII, on one line for any text."""
    found = _quoted.get(text)
    if found is None:
        if len(_quoted) >= _MOST_NAMES:
            _quoted.clear()
        found = _quoted[text] = json.dumps(text)
    return found


def _background(background: bool) -> str:
    return ',"background":true' if background else ""


def _sums(key: str, sums: Sums | None) -> str:
    if not sums:
        return ""
    parts = ",".join(f"{_quote(name)}:[{count},{d}]" for name, (count, d) in sums.items())
    return f',"{key}":{{{parts}}}'
