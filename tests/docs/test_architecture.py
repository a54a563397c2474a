"""docs/architecture.md and CONTRIBUTING.md name what is there, and leave out no room."""

import re
from fnmatch import fnmatch

import pytest

from tests.docs.blocks import DOCS

ROOT = DOCS.parent
PACKAGE = ROOT / "fastplan"
PAGES = (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w-]+(/[\w-]+)+/?(\.\w+)?")


def named_in_table(heading):
    """The first column of the table below a heading of the architecture."""
    text = PAGES[0].read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in _CODE.findall(row)]


def test_every_room_is_there():
    rooms = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert set(named_in_table("Rooms")) == rooms | modules


def test_every_file_of_the_core_is_there():
    stems = {path.stem for path in (ROOT / "cpp").iterdir()}
    patterns = named_in_table("The core (`cpp/`)")
    assert [stem for stem in stems if not any(fnmatch(stem, each) for each in patterns)] == []
    assert [each for each in patterns if not any(fnmatch(stem, each) for stem in stems)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page):
    named = {name for name in _CODE.findall(page.read_text()) if _FILE.fullmatch(name)}
    made = {"fastplan/cli/NAME.py"}
    places = [ROOT, PACKAGE]
    missing = [
        name
        for name in named - made
        if not any((place / f"{name}{end}").exists() for place in places for end in ("", ".py"))
    ]
    assert missing == []
    assert len(named) > 10
