"""docs/architecture.md and CONTRIBUTING.md name what is there, and leave out no package."""

import re
import shlex
import subprocess
from fnmatch import fnmatch
from importlib.util import find_spec

import pytest

from tests.docs.blocks import DOCS

ROOT = DOCS.parent
PACKAGE = ROOT / "fastplan"
PAGES = (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md")
# What a recipe says is to be found in a file.
PLACES = {
    "UNIFORM_TYPES": "fastplan/model/vocabulary.py",
    "SHARDING_TYPES": "tests/parity/components.py",
    "ALL_PROPOSERS": "tests/problems.py",
    "NAMES": "tests/docs/test_api.py",
    "def make_proposers": "tests/parity/components.py",
    "def keep_state": "fastplan/torchrec/read/components.py",
    "def store": "tests/cache/conftest.py",
}
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w-]+(/[\w-]+)+/?(\.\w+)?")


def named_in_table(heading):
    """The first column of the table below a heading of the architecture."""
    text = PAGES[0].read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in _CODE.findall(row)]


def test_every_package_is_there():
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert set(named_in_table("Packages")) == packages | modules


@pytest.mark.parametrize(
    "heading, folder",
    [("The core (`cpp/`)", ROOT / "cpp"), ("TorchRec's side (`torchrec/`)", PACKAGE / "torchrec")],
)
def test_every_file_of_the_large_packages_is_there(heading, folder):
    files = [path for end in ("py", "h", "cpp") for path in folder.rglob(f"*.{end}")]
    stems = {path.stem for path in files if not path.stem.startswith("__")}
    patterns = named_in_table(heading)
    assert [stem for stem in stems if not any(fnmatch(stem, each) for each in patterns)] == []
    assert [each for each in patterns if not any(fnmatch(stem, each) for stem in stems)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page):
    named = {name for name in _CODE.findall(page.read_text()) if _FILE.fullmatch(name)}
    made = {"fastplan/cli/NAME.py", "tests/cli/test_NAME.py"}
    places = [ROOT, PACKAGE]
    missing = [
        name
        for name in named - made
        if not any((place / f"{name}{end}").exists() for place in places for end in ("", ".py"))
    ]
    assert missing == []
    assert len(named) > 10


def test_recipes_name_what_is_in_those_files():
    text = PAGES[1].read_text()
    for name, path in PLACES.items():
        assert name.removeprefix("def ") in text and path in text, name
        assert re.search(rf"^{name}\b", (ROOT / path).read_text(), re.M), name


def test_commands_of_recipes_find_something():
    codes = _CODE.findall(PAGES[1].read_text())
    searches = [code for code in codes if code.startswith("grep ")]
    for search in searches:
        found = subprocess.run(shlex.split(search), cwd=ROOT, capture_output=True, text=True)
        assert len({line.split(":")[0] for line in found.stdout.splitlines()}) > 5, search
    modules = [code.split()[2] for code in codes if code.startswith("python -m ")]
    assert all(find_spec(module) for module in modules)
    assert len(searches) == 2 and modules
