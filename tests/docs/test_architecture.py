"""docs/architecture.md and CONTRIBUTING.md name what is there, and leave out no package."""

import ast
import io
import re
import shlex
import subprocess
import tokenize
from fnmatch import fnmatch
from importlib.util import find_spec

import pytest

from tests.docs.blocks import DOCS
from tests.test_layers import ORDER

ROOT = DOCS.parent
PACKAGE = ROOT / "fastplan"
PAGES = (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md")
# What a recipe says is to be found in a file.
PLACES = {
    "UNIFORM_TYPES": "fastplan/model/vocabulary.py",
    "PROPOSERS": "fastplan/model/vocabulary.py",
    "CONSTANTS": "fastplan/model/hardware_costs.py",
    "_PROPOSERS": "fastplan/torchrec/support/proof_cases.py",
    "TRUTH": "tests/measure/hardware_points.py",
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


def size(*packages):
    """Lines and lines of code, without docstrings and comments, of packages."""
    files = [path for package in packages for path in (PACKAGE / package).rglob("*.py")]
    return sum(len(path.read_text().splitlines()) for path in files), sum(map(code_lines, files))


def code_lines(path):
    text = path.read_text()
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.COMMENT, tokenize.NL) and token.string.strip()
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_every_package_is_there_in_the_order_of_imports():
    modules = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    assert named_in_table("Packages") == [f"{package}/" for package in ORDER] + modules


def test_sizes_are_current():
    """Within 3 % or 100 lines, so that the page need not change with every commit."""
    text = PAGES[0].read_text()
    written = {
        tuple(_CODE.findall(names)): (lines, code)
        for names, lines, code in re.findall(r"^\| (`.+?`) \| ([\d,]+) \(([\d,]+)\) \|", text, re.M)
    }
    whole = re.search(r"package has\s([\d,]+) lines in (\d+) files;\s([\d,]+) of", text)
    written[("",)] = (whole[1], whole[3])
    for packages, figures in written.items():
        now = size(*packages)
        close = [int(figure.replace(",", "")) for figure in figures]
        assert close == [pytest.approx(count, rel=0.03, abs=100) for count in now], (packages, now)
    assert int(whole[2]) == pytest.approx(len(list(PACKAGE.rglob("*.py"))), rel=0.03)
    assert len(written) > 10


def test_the_files_that_a_request_runs_through_are_those_of_the_test():
    flow = (ROOT / "tests" / "test_flow.py").read_text()
    limits = re.search(r"^PLAN, HIT, REPLAN, COMMAND, .* = (.+), \d+$", flow, re.M)[1]
    page = re.search(
        r"passes (\d+) of them,\s+a hit (\d+), a re-plan (\d+), `fastplan plan -o` (\d+)",
        PAGES[0].read_text(),
    )
    assert ", ".join(page.groups()) == limits


def test_every_file_of_torchrecs_side_is_there():
    files = (PACKAGE / "torchrec").rglob("*.py")
    stems = {path.stem for path in files if not path.stem.startswith("__")}
    patterns = named_in_table("TorchRec's side (`torchrec/`)")
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
    assert len(searches) == 4 and modules
