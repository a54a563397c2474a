"""Spec files: YAML or JSON as nodes that know where they stand.

Whatever the bytes are, reading them ends in a Document or in a SpecError that says where and why.
A file is data only: no tag or name in it ever chooses a class.
"""

from __future__ import annotations

import errno
import json
import math
import numbers
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

from fastplan.spec import nodes, units
from fastplan.spec.nodes import MOST_LEVELS, TOO_DEEP, TOO_MANY, TWICE, Node, SpecError, below
from fastplan.spec.units import Scalar, shown
from fastplan.spec.yaml_text import parse_yaml

MOST_BYTES = 64 << 20

Format = Literal["json", "yaml"]

_SUFFIXES: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_JSON_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_JSON_VALUE = re.compile(rf'(?:({_JSON_TEXT})\s*:\s*)?({_JSON_TEXT}|[\[{{\]}}]|[^\s\[\]{{}},:"]+)')


@dataclass(frozen=True, slots=True)
class Document:
    """A spec as nodes. Nodes of JSON have no line of their own: ask `line_of`."""

    file: str
    root: Node
    json_text: str | None = field(default=None, repr=False, compare=False)

    def line_of(self, node: Node, place: str) -> int | None:
        """The line of the node at a place such as `tables[3].rows`; None for plain data."""
        if node.line is None and self.json_text is not None:
            return _json_line(self.json_text, place)
        return node.line


def read_document(path: str | os.PathLike[str]) -> Document:
    """The spec in a file, JSON or YAML by its suffix and else by how it begins."""
    file = os.fspath(path)
    try:
        with open(file, "rb", opener=_open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is a pipe or a device")
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        reason = getattr(error, "strerror", None) or error
        raise SpecError(file or "''", None, "", f"can't be read: {reason}") from error
    return parse_document(data, file)


def parse_document(text: bytes, name: str, *, format: Format | None = None) -> Document:
    """The spec in `text`. `name` stands for the file in errors, and its suffix for the format."""
    if len(text) > MOST_BYTES:
        raise SpecError(name, None, "", f"is larger than {MOST_BYTES >> 20} MiB, the limit")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise SpecError(name, line, "", f"is not UTF-8 text: {error.reason}") from error
    format = format or _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if format is None:
        format = "json" if decoded.lstrip().startswith(("{", "[")) else "yaml"
    if format == "json":
        return _parse_json(decoded, name)
    return Document(name, parse_yaml(decoded, name))


def document_of(value: Any, name: str) -> Document:
    """Plain Python data as a document: mappings, lists, texts and numbers."""
    return Document(name, _PlainReader(name, None).node(value))


def _open_at_once(path: str, flags: int) -> int:
    """Opens without waiting for somebody to write into a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _PlainReader:
    """Makes nodes of plain Python data, such as `json` gives for `json_text`."""

    def __init__(self, file: str, json_text: str | None) -> None:
        self._file = file
        self._json_text = json_text
        self._steps: list[str | int] = []
        self._count = 0

    def node(self, value: Any) -> Node:
        if not isinstance(value, (dict, list, tuple)):
            return Node(self._scalar(value))
        self._count += len(value)
        if self._count > nodes.MOST_NODES:
            raise SpecError(self._file, None, "", TOO_MANY)
        if len(self._steps) >= MOST_LEVELS:
            raise SpecError(self._file, None, "", TOO_DEEP)
        if not isinstance(value, dict):
            return Node([self._child(i, item) for i, item in enumerate(value)])
        for key in value:
            if not isinstance(key, str) or units.is_broken(key):
                raise self._error(f"must have texts as keys, not {shown(key)}")
        return Node({key: self._child(key, item) for key, item in value.items()})

    def _child(self, step: str | int, item: Any) -> Node:
        kind = type(item)
        if item.isascii() if kind is str else kind is int and 0 <= item <= units.LARGEST:
            return Node(item)  # as most are: a shortcut past the checks
        self._steps.append(step)
        node = self.node(item)
        self._steps.pop()
        return node

    def _scalar(self, value: Any) -> Scalar:
        if isinstance(value, str):
            if units.is_broken(value):
                raise self._error(f"must be a text without lone surrogates, not {shown(value)}")
            return str.__str__(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            if self._json_text is not None and not math.isfinite(value):
                raise self._error("must be a finite number")
            return float(value)
        if not isinstance(value, numbers.Integral):
            raise self._error(f"must be plain data, not of type {type(value).__name__}")
        return units.fitted(int(value))

    def _error(self, problem: str) -> SpecError:
        place = reduce(below, self._steps, "")
        line = None if self._json_text is None else _json_line(self._json_text, place)
        return SpecError(self._file, line, place, problem)


def _parse_json(text: str, file: str) -> Document:
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_int=units.read_whole)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg}, at column {error.colno}"
        raise SpecError(file, error.lineno, "", problem) from error
    except RecursionError as error:
        raise SpecError(file, None, "", TOO_DEEP) from error
    except KeyError as error:
        lines: dict[str, int] = {}
        for place, line in _json_places(text):
            if place in lines:
                raise SpecError(file, line, place, TWICE.format(lines[place], line)) from error
            lines[place] = line
    return Document(file, _PlainReader(file, text).node(value), text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise KeyError
    return entries


def _json_line(text: str, place: str) -> int:
    """The line of a place or, when nothing stands there, of what would hold it."""
    found = 1
    for other, line in _json_places(text):
        if place == other:
            return line
        if not other or (place.startswith(other) and place[len(other)] in ".["):
            found = line
    return found


def _json_places(text: str) -> Iterator[tuple[str, int]]:
    """Place and line of every value of well-formed JSON; only errors pay for it."""
    line, counted = 1, 0
    above: list[str] = []
    items: list[int] = []  # that were seen of each container above
    for token in _JSON_VALUE.finditer(text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        key, value = token.groups()
        if value in ("]", "}"):
            above.pop()
            items.pop()
            continue
        place = below(above[-1], items[-1] if key is None else json.loads(key)) if above else ""
        yield place, line
        if items:
            items[-1] += 1
        if value in ("[", "{"):
            above.append(place)
            items.append(0)
