"""Finds the blocks of a page that come from result files, and regenerates them."""

import importlib
import json
import re
from pathlib import Path

from bench.machine import RESULTS
from bench.parts import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(
    r"(?P<begin><!-- bench/results/(?P<file>\w+)\.json: (?P<name>\w+) -->\n)"
    r".*?"
    r"(?P<end>\n?<!-- end -->)",
    re.DOTALL,
)


def update(page: Path) -> None:
    """Writes the figures of the result files into a page, if they differ."""
    text = page.read_text()
    current = with_figures(text)
    if current != text:
        page.write_text(current)
        print(f"written: {page.relative_to(ROOT)}")


def with_figures(text: str) -> str:
    """Returns a page's text with all blocks regenerated from the result files."""
    return _BLOCK.sub(_written, text)


def _written(block: re.Match[str]) -> str:
    result = json.loads((RESULTS / f"{block['file']}.json").read_text())
    module = importlib.import_module(f"bench.figures.{block['file']}")
    return f"{block['begin']}{getattr(module, block['name'])(result)}\n<!-- end -->"
