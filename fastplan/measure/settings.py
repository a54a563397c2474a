"""What is measured, how, and by which processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from fastplan.measure.folder import ASSIGNMENT

LENGTHS = ("fixed", "poisson")
DEVICES = ("cpu", "cuda")


class MeasureError(Exception):
    """What can't be measured; names the plan, table or option, and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How plans are measured."""

    rounds: int = 5  # every plan has its turn in each
    steps: int = 10  # timed in a turn
    warmup: int = 3  # before them
    batches: int = 4  # different ones, used in turn
    lengths: str = "fixed"  # of a feature's bags: all about the mean, or drawn around it
    zipf: float = 0.0  # skew of ids; 0 is none
    seed: int = 0
    dataset: str | None = None  # package.module:function that yields batches

    def __post_init__(self) -> None:
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
class Group:
    """The processes that torchrun starts."""

    device: str
    ranks_per_host: int
    hosts: int = 1
    threads: int = 1  # of each process
    timeout: float = 300.0  # seconds without any progress
    torchrun: tuple[str, ...] = ()  # its further arguments

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise MeasureError(f"`device` must be one of {', '.join(DEVICES)}")
        for name in ("ranks_per_host", "hosts", "threads"):
            if getattr(self, name) < 1:
                raise MeasureError(f"`{name}` must be at least 1")
        if not self.timeout > 0:
            raise MeasureError("`timeout` must be more than 0 seconds")

    @property
    def ranks(self) -> int:
        """Of all hosts together."""
        return self.ranks_per_host * self.hosts


class Turn(NamedTuple):
    """One plan in one round."""

    round: int
    plan: int


def turns(plans: int, rounds: int) -> tuple[Turn, ...]:
    """Plans in turn, so that drift hits all alike; each round starts with another one."""
    return tuple(
        Turn(number, (number + i) % plans) for number in range(rounds) for i in range(plans)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What the workers are told, as a file in the run's folder."""

    task: str  # measure or calibrate
    device: str
    timeout: float
    settings: dict[str, Any]
    target: str | None = None  # of a real model
    labels: tuple[str, ...] = ()  # of the plans
    turns: tuple[Turn, ...] = ()

    def write(self, folder: Path) -> None:
        draft = folder / f".{ASSIGNMENT}.tmp"
        draft.write_text(json.dumps(asdict(self)))
        draft.replace(folder / ASSIGNMENT)

    @staticmethod
    def read(folder: Path) -> Assignment:
        content = json.loads((folder / ASSIGNMENT).read_text())
        content["labels"] = tuple(content["labels"])
        content["turns"] = tuple(Turn(*turn) for turn in content["turns"])
        assert content.keys() == {field.name for field in fields(Assignment)}
        return Assignment(**content)
