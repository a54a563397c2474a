"""Fuzz target for sweep files and for files of results.

Whatever the bytes, a sweep file is read or is a SpecError, and the rows of a results file that were
read are appended and read again as the same ones.
"""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import asdict
from pathlib import Path

from fastplan.files.document import SpecError
from fastplan.sweep.file import read_sweep
from fastplan.sweep.rows import ResultsFile
from fastplan.sweep.sweep import SweepError
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.sweep.samples import row, write_files

_SWEEP = {
    "models": ["small.yaml", {"spec": "small.yaml", "name": "big"}],
    "skus": ["h100", "lab.json:a"],
    "hosts": [1, 2],
    "local_world_size": 4,
    "batch_sizes": ["2k", 4096],
    "precisions": ["fp32", "fp16"],
    "global_batch": True,
}
_SKUS = '{"skus": {"a": {"like": "h100"}}}'
_WORDS = [
    "small.yaml",
    "lab.json",
    "lab.json:b",
    "h100",
    "a.b:c",
    ".",
    "/",
    "fp8",
    "\0",
    [8],
    1e400,
]
_ROWS = [asdict(row(rating=1.5)), asdict(row(fits=None, error="no"))]


def check(tried: bytes) -> None:
    kind, _, data = tried.partition(b"\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == b"rows":
            _check_rows(folder, data)
            return
        write_files(folder, "")
        (folder / "lab.json").write_text(_SKUS)
        (folder / "tried.yaml").write_bytes(data)
        try:
            read_sweep(folder / "tried.yaml")
        except SpecError:
            return


def _check_rows(folder: Path, data: bytes) -> None:
    (folder / "rows").write_bytes(data)
    try:
        found = ResultsFile(folder / "rows").read()
    except SweepError:
        return
    ResultsFile(folder / "rows").append(found.values())
    assert ResultsFile(folder / "rows").read() == found


def draw(draw: random.Random) -> bytes:
    """A good file with a few changes, as data or as text."""
    if draw.random() < 0.5:
        rows = changed_data(draw, _ROWS, VALUES)
        text = "\n".join(map(json.dumps, rows)).encode()
        return b"rows\n" + (changed_bytes(draw, text, TOKENS) if draw.random() < 0.5 else text)
    text = json.dumps(changed_data(draw, _SWEEP, VALUES + _WORDS)).encode()
    return b"sweep\n" + (changed_bytes(draw, text, TOKENS) if draw.random() < 0.5 else text)


TARGET = Target(draw, check)
