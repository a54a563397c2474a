"""Writes docs/results.md, where every benchmark shows its result file, and other pages' figures."""

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

PAGE = ROOT / "docs" / "results.md"

HEAD = """# Results

Written by `make bench` from the files in [bench/results](../bench/results), which have all single
figures. Both sides of a comparison are measured in one run, on the same input. Times are medians
where n is above 1, with their spread. The machine is a small virtual one whose cores others share:
ratios say more than times, and a time may be off by a third. Where there is a goal, it is said
whether it holds.
"""


BASELINES = """
## Both baselines
What a start pays for its plan: planned anew, or with a plan that is known, for which TorchRec has
the `PlanLoader`. Medians; [Cache and broadcast](#cache-and-broadcast) has n and spread.

"""


def write() -> None:
    """The page of all results that are there, and their figures in other pages."""
    there = [part for part in PARTS if _is_there(part)]
    PAGE.write_text(HEAD + _baselines(there) + "".join(map(_section, there)))
    print(f"written: {PAGE.relative_to(ROOT)}")
    for page in blocks.PAGES:
        blocks.update(page)


def command(part: Part) -> list[str]:
    return [sys.executable, "-m", part.module, *part.arguments]


def environment(part: Part) -> dict[str, str]:
    others = {} if part.torchrec is None else {"PYTHONPATH": str(part.torchrec)}
    return {**os.environ, **others}


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
    """What the benchmark prints of its results; in this process, since each would import torch."""
    told = io.StringIO()
    arguments = [part.module, *part.arguments, "--show"]
    with redirect_stdout(told), patch.object(sys, "argv", arguments):
        code = importlib.import_module(part.module).main()
    if code:
        raise SystemExit(f"{part.name}: its results can't be shown")
    return told.getvalue()


def _origin(result: dict[str, Any]) -> str:
    packages = result["packages"]
    return (
        f"{result['date'][:10]}, commit {result['commit']}, TorchRec {packages['torchrec']}, "
        f"torch {packages['torch']},\nPython {result['python']}, {result['cpu']}, "
        f"{result['cpu_count']} cores."
    )
