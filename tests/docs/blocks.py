"""The examples in the docs, to be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"
_SECTION = re.compile(r"^## (?P<title>.+)\n(?P<text>(?:(?!^## ).*\n)*)", re.M)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


class Example(NamedTuple):
    """A section with code in it."""

    title: str
    text: str
    code: str


def examples(page: str) -> list[Example]:
    """The sections of a page that have code, all blocks of a section as one."""
    found = []
    for section in _SECTION.finditer((DOCS / page).read_text()):
        blocks = _BLOCK.findall(section["text"])
        if blocks:
            found.append(Example(section["title"], section["text"], "\n".join(blocks)))
    return found


def blocks(page: str, language: str) -> list[str]:
    """A page's blocks in a language; those without one are command lines and what they print."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)
    return [text for name, text in found if name == language]
