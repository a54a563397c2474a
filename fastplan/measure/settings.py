"""The settings of a measurement, the parts of a step, and the files in the folder of a run."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

# Files in the folder of a run.
ASSIGNMENT = "assignment.json"  # the configuration of the workers
MODEL = "model.json"  # the spec, with the measured numbers of rows
RUN = "run.json"  # what was measured, and how
ROUNDS = "rounds.jsonl"  # a line for each plan and round
FAILURES = "failures.jsonl"  # a line for each plan that could not be measured
POINTS = "points.jsonl"  # a line for each micro-benchmark
LOGS = "logs"
STATUS = "status"  # heartbeats, errors and exit codes of the ranks

# The parts of a step that are timed.
PARTS = ("input_dist", "lookup", "output_dist", "backward")

NAMES = {
    "input_dist": "input dist",
    "lookup": "lookup",
    "output_dist": "output dist",
    "backward": "backward + update",
}

# The parts of TorchRec's estimate, by measured part.
ESTIMATED = {
    "input_dist": ("input_dist",),
    "lookup": ("fwd_compute", "prefetch"),
    "output_dist": ("fwd_comms",),
    "backward": ("bwd_compute", "bwd_comms"),
}

LENGTHS = ("fixed", "poisson")
DEVICES = ("cpu", "cuda")


class MeasureError(Exception):
    """A plan can't be measured. The message names the plan, table or option, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How plans are measured.

    Attributes:
        rounds: Each round has one turn of every plan.
        steps: Timed steps of a turn.
        warmup: Steps before the timed ones.
        batches: Different batches, used in turn.
        lengths: Lengths of bags: "fixed" is close to the mean, "poisson" is drawn around it.
        zipf: Skew of ids; 0 is none.
        seed: Seed of the batches.
        dataset: package.module:function that yields batches.
        resident: Whether all plans stay in memory, so that a turn may be as short as one step.
        part_rounds: The number of rounds, the first ones, in which parts are timed; None: all.

    Raises:
        MeasureError: A value is out of range.
    """

    rounds: int = 10
    steps: int = 5
    warmup: int = 3
    batches: int = 4
    lengths: str = "fixed"
    zipf: float = 0.0
    seed: int = 0
    dataset: str | None = None
    resident: bool = False
    part_rounds: int | None = None

    def __post_init__(self) -> None:
        if self.part_rounds is not None and self.part_rounds < 1:
            raise MeasureError(f"`part_rounds` must be at least 1, not {self.part_rounds}")
        for name, least in (
            ("rounds", 1),
            ("steps", 1),
            ("batches", 1),
            ("warmup", 0),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise MeasureError(f"`{name}` must be at least {least}, not {getattr(self, name)}")
        if self.lengths not in LENGTHS:
            raise MeasureError(
                f"`lengths` must be one of {', '.join(LENGTHS)}, not {self.lengths!r}"
            )
        if not 0 <= self.zipf < 10:
            raise MeasureError(f"`zipf` must be from 0 to below 10, not {self.zipf:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """The processes that torchrun starts.

    Attributes:
        device: "cpu" or "cuda".
        ranks_per_host: Processes of each host.
        hosts: Number of hosts.
        threads: Threads of each process.
        timeout: Seconds without any progress after which the group is stopped.
        torchrun: More arguments for torchrun.
        link: Bits per second between the hosts, which are emulated on this machine; None: the hosts
            are real, and each runs its own command.

    Raises:
        MeasureError: A value is out of range.
    """

    device: str
    ranks_per_host: int
    hosts: int = 1
    threads: int = 1
    timeout: float = 300.0
    torchrun: tuple[str, ...] = ()
    link: int | None = None

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise MeasureError(f"`device` must be one of {', '.join(DEVICES)}")
        for name in ("ranks_per_host", "hosts", "threads"):
            if getattr(self, name) < 1:
                raise MeasureError(f"`{name}` must be at least 1")
        if not self.timeout > 0:
            raise MeasureError("`timeout` must be more than 0 seconds")
        if self.link is not None and self.device != "cpu":
            raise MeasureError("emulated hosts have no GPUs: `device` must be cpu")

    @property
    def ranks(self) -> int:
        """The number of ranks on all hosts."""
        return self.ranks_per_host * self.hosts

    @property
    def on_this_machine(self) -> bool:
        """Whether all ranks run on this machine and share its files."""
        return self.hosts == 1 or self.link is not None

    @property
    def ranks_per_machine(self) -> int:
        """The ranks that share this machine's cores and memory."""
        return self.ranks if self.on_this_machine else self.ranks_per_host


class Turn(NamedTuple):
    """One plan in one round."""

    round: int
    plan: int


def turns(plans: int, rounds: int, seed: int = 0) -> tuple[Turn, ...]:
    """Returns all turns. Each round has every plan once, in an order that is drawn.

    Drift then affects all plans equally, and work that comes at regular times favours none.
    """
    draw = random.Random(seed)
    orders = (draw.sample(range(plans), plans) for _ in range(rounds))
    return tuple(Turn(number, plan) for number, order in enumerate(orders) for plan in order)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The configuration of the workers, stored in the run's folder.

    Attributes:
        task: "measure" or "calibrate".
        device: "cpu" or "cuda".
        timeout: Seconds without any progress.
        settings: Settings of the task.
        target: package.module:function of a real model.
        labels: Labels of the plans.
        turns: The turns to measure.
    """

    task: str
    device: str
    timeout: float
    settings: dict[str, Any]
    target: str | None = None
    labels: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()

    def write(self, folder: Path) -> None:
        """Writes the file into a run's folder."""
        draft = folder / f".{ASSIGNMENT}.tmp"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(folder / ASSIGNMENT)

    @staticmethod
    def read(folder: Path) -> WorkerConfig:
        """Reads the file in a run's folder."""
        content = json.loads((folder / ASSIGNMENT).read_text())
        content["labels"] = tuple(content["labels"])
        content["turns"] = tuple(Turn(*turn) for turn in content["turns"])
        assert content.keys() == {field.name for field in fields(WorkerConfig)}
        return WorkerConfig(**content)


def plan_file(folder: Path, number: int) -> Path:
    """Returns the file of a plan that the workers load."""
    return folder / "plans" / f"{number}.json"


def append_line(file: Path, line: str) -> None:
    """Appends a line in one write, so that readers see all of it or nothing."""
    target = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(target, f"{line}\n".encode())
        os.fsync(target)
    finally:
        os.close(target)
