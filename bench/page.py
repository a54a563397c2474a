"""Writes docs/results.md and the figures of other pages from the result files."""

import importlib
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.figures import blocks, cache
from bench.machine import RESULTS
from bench.parts import PARTS, ROOT, Part
from bench.summary import summary

PAGE = ROOT / "docs" / "results.md"
_NO_COMPILED_FILES = "PYTHONDONTWRITEBYTECODE"

HEAD = """# Results

"""

METHOD = """

## How to read this page
`make bench` measures everything again and writes this page from the files in
[bench/results](../bench/results), which contain every single figure.

- Both sides of a comparison are measured in one run, on the same input.
- Times are medians if n is above 1, with their spread.
- The machine is small, virtual and shared with other work: ratios are more reliable than times, and
  a time may be off by a third.
- A section names the goals that its benchmark checks.
"""


BASELINES = """
## Both baselines
The time that a start spends on its plan, compared with both of TorchRec's ways: a full plan, and a
plan that a `PlanLoader` already has. Medians; [Cache and broadcast](#cache-and-broadcast) has n and
spread.

"""


def write() -> None:
    """Writes the page from all existing results, and their figures into other pages."""
    PAGE.write_text(text())
    print(f"written: {PAGE.relative_to(ROOT)}")
    for page in blocks.PAGES:
        blocks.update(page)


def text() -> str:
    """The page of all existing results."""
    there = [part for part in PARTS if _is_there(part)]
    lines = summary({part.name: _result(part) for part in there})
    return HEAD + lines + METHOD + _baselines(there) + "".join(map(_section, there))


def command(part: Part) -> list[str]:
    return [sys.executable, "-m", part.module, *part.arguments]


def environment(part: Part) -> dict[str, str]:
    """Returns the environment of a benchmark.

    Python may keep compiled files, as for most users. Without them an import takes twice as long.
    """
    own = {name: value for name, value in os.environ.items() if name != _NO_COMPILED_FILES}
    return own if part.torchrec is None else {**own, "PYTHONPATH": str(part.torchrec)}


def _file(part: Part, ending: str) -> Path:
    return RESULTS / f"{part.name}.{ending}"


def _is_there(part: Part) -> bool:
    return _file(part, "json").exists()


def _baselines(parts: list[Part]) -> str:
    results = [_result(part) for part in parts if part.module == "bench.cache"]
    return f"{BASELINES}{cache.baselines(results)}\n" if results else ""


def _result(part: Part) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(_file(part, "json").read_text())
    return result


def _section(part: Part) -> str:
    lines = [line.rstrip() for line in _shown(part).strip().splitlines()]
    picture = _file(part, "svg")
    drawn = f"\n![{part.title}](../{picture.relative_to(ROOT)})\n" if picture.exists() else ""
    origin = _origin(_result(part))
    body = "\n".join(["```", *lines, "```", origin])
    return f"\n## {part.title}\n{part.method}\n{drawn}{body}\n"


def _shown(part: Part) -> str:
    """What the benchmark prints for its results. In this process, to import torch only once."""
    printed = io.StringIO()
    arguments = [part.module, *part.arguments, "--show"]
    with redirect_stdout(printed), patch.object(sys, "argv", arguments):
        code = importlib.import_module(part.module).main()
    if code:
        raise SystemExit(f"{part.name}: its results can't be shown")
    return printed.getvalue()


def _origin(result: dict[str, Any]) -> str:
    packages = result["packages"]
    return (
        f"{result['date'][:10]}, commit {result['commit']}, TorchRec {packages['torchrec']}, "
        f"torch {packages['torch']},\nPython {result['python']}, {result['cpu']}, "
        f"{result['cpu_count']} cores."
    )
