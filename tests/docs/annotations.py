"""What names in annotations stand for, read from the source: imports for type checkers count."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Annotation(NamedTuple):
    """An annotation with fastplan's aliases spelled out, and the classes of fastplan it names."""

    text: str
    classes: frozenset[str]


class _Names(NamedTuple):
    """The names of a module that annotations use."""

    classes: frozenset[str]
    aliases: dict[str, ast.expr]
    imports: dict[str, str]  # name -> module of fastplan


@cache
def _names(module: str) -> _Names:
    tree = ast.parse(Path(find_spec(module).origin).read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return _Names(
        classes=frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        aliases={node.targets[0].id: node.value for node in assigned if _is_name(node.targets[0])},
        imports={
            each.asname or each.name: node.module
            for node in imported
            for each in node.names
            if node.module.split(".")[0] == "fastplan"
        },
    )


def _is_name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name)


class _Reader(ast.NodeTransformer):
    def __init__(self, modules: tuple[str, ...]) -> None:
        self.modules = modules
        self.classes: set[str] = set()
        self.spelled_out = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        for module in self.modules:
            names = _names(module)
            if node.id in names.classes:
                self.classes.add(f"{module}.{node.id}")
                return node
            if node.id in names.aliases:
                return self._spell_out(names.aliases[node.id], module)
            if node.id in names.imports:
                return self._elsewhere(node, names.imports[node.id])
        return node

    def _elsewhere(self, node: ast.Name, module: str) -> ast.expr:
        inner = _Reader((module,))
        read = inner.visit(node)
        self.classes |= inner.classes
        self.spelled_out |= inner.spelled_out
        return read

    def _spell_out(self, alias: ast.expr, module: str) -> ast.expr:
        self.spelled_out = True
        return self._elsewhere(ast.parse(ast.unparse(alias), mode="eval").body, module)


def read_annotation(text: str, modules: tuple[str, ...]) -> Annotation:
    """An annotation that was written in one of the modules."""
    reader = _Reader(modules)
    read = reader.visit(ast.parse(text, mode="eval").body)
    return Annotation(ast.unparse(read) if reader.spelled_out else text, frozenset(reader.classes))
