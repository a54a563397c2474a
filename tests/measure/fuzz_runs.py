"""Fuzz target for folders of measurements and for files of measured times.

Whatever the bytes, a folder is read or is a MeasureError, and records are read or are a SpecError.
What was read has times and drifts that can be printed.
"""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path

from fastplan.files.document import SpecError
from fastplan.measure.records import parse_records
from fastplan.measure.results import read_runs
from fastplan.measure.settings import FAILURES, ROUNDS, RUN, MeasureError
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.measure.samples import planned, spec, write_runs
from tests.measure.test_records import COLLECTIVE, LOOKUP

_FILES = (RUN, ROUNDS, FAILURES)


@cache
def _good() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = spec()
        plans = {kind: planned(given, kind) for kind in ("table_wise", "row_wise")}
        write_runs(folder, plans, {"table_wise": 0.01, "row_wise": 0.02}, rounds=2)
        (folder / FAILURES).write_text(json.dumps({"text": "row_wise, rank 1: died"}))
        return {file: (folder / file).read_bytes() for file in _FILES}


def check(tried: bytes) -> None:
    kind, _, data = tried.partition(b"\n")
    if kind == b"records":
        try:
            list(parse_records(data.splitlines(), "records"))
        except SpecError:
            return
        return
    with tempfile.TemporaryDirectory() as name:
        for file, good in _good().items():
            (Path(name) / file).write_bytes(data if file.encode() == kind else good)
        try:
            runs = read_runs(name)
        except MeasureError:
            return
    assert runs.drift >= 0
    for plan in runs.plans:
        assert plan.step.median >= 0
        assert len(plan.steps) > 0


def draw(draw: random.Random) -> bytes:
    """A good file with a few changes, as data or as text."""
    kind = draw.choice(["records", *_FILES])
    if kind == "records":
        lines = [LOOKUP, COLLECTIVE]
    else:
        lines = [json.loads(line) for line in _good()[kind].splitlines()] if kind != RUN else []
        lines = lines or [json.loads(_good()[RUN])]
    changed = changed_data(draw, lines, VALUES) if draw.random() < 0.7 else lines
    text = "\n".join(map(json.dumps, changed)).encode()
    if changed is lines or draw.random() < 0.2:
        text = changed_bytes(draw, text, TOKENS)
    return kind.encode() + b"\n" + text


TARGET = Target(draw, check)
