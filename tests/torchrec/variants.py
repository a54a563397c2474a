"""Changed copies of the installed TorchRec, each planned with in a process of its own.

The copies stand for versions that do not exist yet. They are links to the installed files, except
for the files that are changed. A parent process loads everything but TorchRec once and forks for
each copy, because torch takes seconds to import.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torchrec

STOCK = Path(torchrec.__path__[0])
PLANNER = "distributed/planner"
_NO_COPY = {"tests", "test_utils"}


class Planned(NamedTuple):
    """What both planners made of a small model with a copy of TorchRec."""

    same: bool
    engine: str | None
    reason: str
    error: str  # of fastplan's planner, if TorchRec's has none


def make_copy(folder: Path, edits: Mapping[str, Callable[[str], str]]) -> Path:
    """Creates a copy in `folder` with edited files, given by their paths in the package.

    Raises:
        AssertionError: an edit changes nothing.
    """
    _link(STOCK, folder / "torchrec", {Path(name) for name in edits})
    for name, edit in edits.items():
        text = (STOCK / name).read_text()
        changed = edit(text)
        assert changed != text, f"nothing to change in {name}"
        (folder / "torchrec" / name).write_text(changed)
    return folder


def _link(stock: Path, target: Path, edited: set[Path]) -> None:
    """Makes a folder of links, with real folders and no file where something is edited."""
    target.mkdir(parents=True)
    heads = {path.parts[0] for path in edited}
    for entry in stock.iterdir():
        if entry.name in _NO_COPY:
            continue
        if entry.name not in heads:
            (target / entry.name).symlink_to(entry)
        elif entry.is_dir():
            inner = {Path(*path.parts[1:]) for path in edited if path.parts[0] == entry.name}
            _link(entry, target / entry.name, inner)


def renamed(name: str) -> dict[str, Callable[[str], str]]:
    """Returns edits that rename a name wherever TorchRec uses it."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    files = [file for file in STOCK.rglob("*.py") if not _NO_COPY & set(file.parts)]
    found = [file for file in files if word.search(file.read_text())]
    return {
        str(file.relative_to(STOCK)): lambda text: word.sub(f"{name}_of_tomorrow", text)
        for file in found
    }


def replaced(file: str, before: str, after: str) -> dict[str, Callable[[str], str]]:
    """Returns an edit that replaces a text of one file of the planner."""
    return {f"{PLANNER}/{file}": lambda text: text.replace(before, after)}


def plan_with(copies: Mapping[str, Path], cache: Path) -> dict[str, Planned]:
    """Plans with each copy; `cache` is the directory of verdicts."""
    listed = json.dumps({name: str(folder) for name, folder in copies.items()})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.torchrec.variant_worker"],
        input=listed,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": ":".join(sys.path),
            "PYTHONDONTWRITEBYTECODE": "1",  # the copies link to the compiled files, too
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    return {each.pop("name"): Planned(**each) for each in lines}
