"""What lies where in the folder of a run."""

from __future__ import annotations

import os
from pathlib import Path

ASSIGNMENT = "assignment.json"  # what the workers are told
MODEL = "model.json"  # the spec, with its rows as they are measured
RUN = "run.json"  # what was measured, and how
ROUNDS = "rounds.jsonl"  # a line for each plan and round
FAILURES = "failures.jsonl"  # a line for each plan that could not be measured
POINTS = "points.jsonl"  # a line for each micro-benchmark
LOGS = "logs"
STATUS = "status"  # beats, faults and exits of the ranks


def plan_file(folder: Path, number: int) -> Path:
    """A plan as the workers load it."""
    return folder / "plans" / f"{number}.json"


def append_line(file: Path, line: str) -> None:
    """Adds a line in one write: a reader or a kill sees all of it or nothing."""
    target = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(target, f"{line}\n".encode())
        os.fsync(target)
    finally:
        os.close(target)
