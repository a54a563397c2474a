"""Packages import each other one way: each only those that stand before it."""

import ast
from pathlib import Path

import pytest

import fastplan

ROOT = Path(fastplan.__file__).parent
ORDER = (
    *("model", "engine", "files", "cache", "costs", "spec", "plans", "planning", "report"),
    *("torchrec", "checkpoint", "sweep", "doctor", "bundle", "launch", "ett", "measure"),
    *("profile", "cli"),
)
# A pickled plan is made of TorchRec's classes. They are loaded when a user says that the file is
# trusted, and at no other time.
EXCEPTIONS = {("plans", "torchrec")}


def imported(path):
    """The packages of fastplan that a file imports, inside functions too; not those for types."""
    tree = ast.parse(path.read_text())
    types = {
        id(node)
        for check in ast.walk(tree)
        if isinstance(check, ast.If) and getattr(check.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(check)
    }
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastplan."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (n.name.split(".")[1] for n in node.names if n.name.startswith("fastplan."))


def test_every_package_has_its_place():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_those_before_it(package):
    allowed = {*ORDER[: ORDER.index(package) + 1]}
    allowed |= {other for own, other in EXCEPTIONS if own == package}
    wrong = {
        (str(path.relative_to(ROOT)), other)
        for path in (ROOT / package).rglob("*.py")
        for other in imported(path)
        if other not in allowed
    }
    assert wrong == set()
