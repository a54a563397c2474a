"""Messages of commands are for people who don't see the code."""

import ast
import re
from pathlib import Path

import pytest

import fastplan

ROOT = Path(fastplan.__file__).parent
# Packages whose errors commands print. Others are only used in Python.
SHOWN = ("cli", "spec", "sweep", "plans", "planning", "report", "cache", "files", "ett")
# Arguments written as in Python; `--option=value` and `name=2.5` of the command line are not.
PYTHON = re.compile(r"(?<![-\w])[a-z_]{2,}=(True|False|None|\.\.\.)|\b[a-z_]+=`|\([a-z_]+=\.\.\.\)")


def messages(path):
    """The texts of errors and of what is printed."""
    for node in ast.walk(ast.parse(path.read_text())):
        calls = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("print", "warn")
        if isinstance(node, ast.Raise) or calls:
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield each.value


@pytest.mark.parametrize("package", SHOWN)
def test_messages_have_no_arguments_of_python(package):
    found = {
        f"{path.name}: {text}"
        for path in (ROOT / package).rglob("*.py")
        for text in messages(path)
        if PYTHON.search(text)
    }
    assert found == set()
