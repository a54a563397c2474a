"""Where each rank is: it notes every stage in a small file, so that others see it hang.

A note is one write over the old one: readers see the one or the other, and a rank that is killed
leaves its last.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import NamedTuple

from fastplan.measure.processes import born

_BYTES = 512


class Beat(NamedTuple):
    """A rank's last note."""

    rank: int
    pid: int
    born: int  # the process's start, which tells it from a later one of the same number
    host: str
    plan: int  # -1 before the first
    round: int
    stage: str
    stages: int  # so far


class Beats:
    """A rank's own notes."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = os.open(folder / f"rank-{rank}.json", os.O_CREAT | os.O_WRONLY, 0o644)
        self.last = Beat(rank, os.getpid(), born(os.getpid()), socket.gethostname(), -1, -1, "", 0)
        self.stage("start")

    def turn(self, plan: int, round: int) -> None:
        self.last = self.last._replace(plan=plan, round=round)

    def stage(self, stage: str) -> None:
        """Notes that the rank has come so far."""
        self.last = self.last._replace(stage=stage, stages=self.last.stages + 1)
        os.pwrite(self._file, json.dumps(self.last._asdict()).ljust(_BYTES).encode(), 0)


def read_beats(folder: Path) -> dict[int, Beat]:
    """The last note of every rank that has made one."""
    found = {}
    for file in folder.glob("rank-*.json"):
        try:
            beat = Beat(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError):
            continue  # just being written for the first time
        found[beat.rank] = beat
    return dict(sorted(found.items()))
