"""Finds the names in code that docs/api.md does not list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.cli.command import ROOT


def internal_names(code: str) -> list[str]:
    """Returns the names of fastplan in some code that the API page does not list."""
    listed = (ROOT / "docs" / "api.md").read_text()
    public = set(re.findall(r"^- `(?:class )?(fastplan[\w.]*)", listed, re.M)) | {"fastplan"}
    packages = {name.rpartition(".")[0] for name in public}
    classes = {name for name in public if name.rpartition(".")[2][0].isupper()}
    used = set(used_names(code))
    whole = {name for name in used if not any(other.startswith(f"{name}.") for other in used)}
    of_classes = {name for name in whole if name.rpartition(".")[0] in classes}
    return sorted(whole - of_classes - public - packages)


def used_names(code: str) -> Iterator[str]:
    """Yields the names of fastplan that code imports or writes out, as in `fastplan.plan`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("fastplan"))
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("fastplan"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("fastplan."):
            yield ast.unparse(node)
