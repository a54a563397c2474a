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

from fastplan.spec import units
from fastplan.spec.units import NO_TAGS, YAML_TAG, Scalar, shown

MOST_BYTES = 64 << 20
MOST_NODES = 2_000_000  # with every alias written out
MOST_LEVELS = 100

Format = Literal["json", "yaml"]

_TOO_DEEP = f"is nested more than {MOST_LEVELS} levels deep"
_TOO_MANY = f"has more than {MOST_NODES:,} values, with every alias written out"
_TWICE = "is there twice, in lines {} and {}; keep one"
_SUFFIXES: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_JSON_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_JSON_VALUE = re.compile(rf'(?:({_JSON_TEXT})\s*:\s*)?({_JSON_TEXT}|[\[{{\]}}]|[^\s\[\]{{}},:"]+)')


class SpecError(ValueError):
    """A spec that can't be used: in which file, line and place, and what is the problem there."""

    def __init__(self, file: str, line: int | None, place: str, problem: str) -> None:
        super().__init__(file, line, place, problem)
        self.file = file
        self.line = line
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (where, self.place, self.problem) if part)


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the line where it begins: for an entry of a mapping, the line of its key."""

    value: dict[str, Node] | list[Node] | Scalar
    line: int | None = None


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


def below(place: str, step: str | int) -> str:
    """The place of an entry: `tables[3]`, `tables[3].rows`, `groups["a b"]`."""
    if isinstance(step, int):
        return f"{place}[{step}]"
    if step.replace("-", "_").isidentifier():
        return f"{place}.{step}" if place else step
    return f"{place}[{json.dumps(step)}]"


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
        raise SpecError(file, None, "", f"can't be read: {reason}") from error
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
    return _parse_json(decoded, name) if format == "json" else _parse_yaml(decoded, name)


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
        if self._count > MOST_NODES:
            raise SpecError(self._file, None, "", _TOO_MANY)
        if len(self._steps) >= MOST_LEVELS:
            raise SpecError(self._file, None, "", _TOO_DEEP)
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
        raise SpecError(file, None, "", _TOO_DEEP) from error
    except KeyError as error:
        lines: dict[str, int] = {}
        for place, line in _json_places(text):
            if place in lines:
                raise SpecError(file, line, place, _TWICE.format(lines[place], line)) from error
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


def _parse_yaml(text: str, file: str) -> Document:
    try:
        import yaml
    except ImportError as error:
        problem = "is YAML, which needs PyYAML: pip install pyyaml, or write it as JSON"
        raise SpecError(file, None, "", problem) from error
    try:
        return Document(file, _YamlReader(file, yaml).read(text))
    except SpecError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        problem = " ".join(part for part in (error.problem, error.context) if part)
        if mark and re.match(r" *\t", "".join(text.split("\n")[mark.line : mark.line + 1])):
            problem += "; indent with spaces, not with tabs"
    except yaml.reader.ReaderError as error:
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else None
        problem = str(error.reason)
    except (ValueError, OverflowError) as error:  # an escape or a version that is no such number
        line, problem = None, str(error)
    raise SpecError(file, line, "", f"is not YAML: {problem}")


@dataclass(slots=True)
class _Open:
    """A YAML mapping or list whose end is yet to come."""

    is_mapping: bool
    line: int
    anchor: str | None
    before: int  # nodes before it
    levels: int = 1
    entries: dict[str, Node] = field(default_factory=dict)  # of a mapping
    items: list[Node] = field(default_factory=list)  # of a list
    merged: list[dict[str, Node]] = field(default_factory=list)  # what `<<` refers to
    key: str | None = None  # the one whose value comes next
    key_line: int = 0
    merging: bool = False  # whether that key is a plain `<<`

    @property
    def awaits_key(self) -> bool:
        return self.is_mapping and self.key is None


class _YamlReader:
    """Makes nodes of YAML's events, in a loop: `yaml.compose` overflows the stack on deep files."""

    def __init__(self, file: str, yaml: Any) -> None:
        self._file = file
        self._yaml = yaml
        self._open: list[_Open] = []
        # Each with its nodes and levels; None until its end.
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}
        self._count = 0
        self._root: Node | None = None

    def read(self, text: str) -> Node:
        yaml = self._yaml
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while loader.check_event():
            event = loader.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                tag = event.tag
                if tag is None or tag == "!":
                    tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)
                self._scalar(event, tag)
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, is_mapping=kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end(event)
            elif kind is yaml.DocumentStartEvent and self._root is not None:
                raise self._error(event, "must be one document, but a second one begins here")
        return self._root or Node(None, 1)

    def _scalar(self, event: Any, tag: str) -> None:
        try:
            value = units.yaml_scalar(event.value, tag)
        except ValueError as error:
            raise self._error(event, str(error)) from error
        if tag == YAML_TAG + "merge" and self._open:
            self._open[-1].merging = self._open[-1].awaits_key
        self._put(event, Node(value, self._line(event)), event.anchor, 1, 0)

    def _alias(self, event: Any) -> None:
        name = event.anchor
        if name not in self._anchors:
            raise self._error(event, f"refers to `*{name}`, but no `&{name}` stands before it")
        anchored = self._anchors[name]
        if anchored is None:
            raise self._error(event, f"refers to `*{name}` inside of `&{name}`, so it has no end")
        node, size, levels = anchored
        self._put(event, Node(node.value, self._line(event)), name, size, levels)

    def _begin(self, event: Any, *, is_mapping: bool) -> None:
        if event.tag not in (None, "!", YAML_TAG + ("map" if is_mapping else "seq")):
            raise self._error(event, f"has the tag {shown(event.tag)}; {NO_TAGS}")
        if self._open and self._open[-1].awaits_key:
            raise self._error(event, "must have texts as keys, not mappings or lists")
        if len(self._open) >= MOST_LEVELS:
            raise SpecError(self._file, event.start_mark.line + 1, "", _TOO_DEEP)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Open(is_mapping, self._line(event), event.anchor, self._count))

    def _end(self, event: Any) -> None:
        top = self._open.pop()
        entries: dict[str, Node] = {}
        for source in (*reversed(top.merged), top.entries):
            entries |= source
        node = Node(entries if top.is_mapping else top.items, top.line)
        inside, self._count = self._count - top.before, top.before
        self._put(event, node, top.anchor, inside + 1, top.levels)

    def _put(self, event: Any, node: Node, anchor: str | None, size: int, levels: int) -> None:
        """Takes a whole node, of so many nodes and levels, into the mapping or list around it."""
        self._count += size
        if self._count > MOST_NODES:
            raise SpecError(self._file, event.start_mark.line + 1, "", _TOO_MANY)
        if len(self._open) + levels > MOST_LEVELS:
            raise SpecError(self._file, event.start_mark.line + 1, "", _TOO_DEEP)
        if anchor:
            self._anchors[anchor] = node, size, levels
        if not self._open:
            self._root = node
            return
        top = self._open[-1]
        top.levels = max(top.levels, levels + 1)
        if not top.is_mapping:
            top.items.append(node)
        elif top.key is None:
            self._put_key(event, top, node.value)
        else:
            if top.merging:
                top.merged += self._merged(event, node)
            else:
                top.entries[top.key] = node
            top.key, top.merging = None, False

    def _put_key(self, event: Any, top: _Open, key: object) -> None:
        if not isinstance(key, str):
            raise self._error(event, f"must have texts as keys; put {shown(key)} in quotes")
        top.key, top.key_line = key, event.start_mark.line + 1
        if key in top.entries and not top.merging:
            raise self._error(event, _TWICE.format(top.entries[key].line, top.key_line))

    def _merged(self, event: Any, node: Node) -> list[dict[str, Node]]:
        sources = node.value if isinstance(node.value, list) else [node]
        found = [source.value for source in sources if isinstance(source.value, dict)]
        if len(found) != len(sources):
            raise self._error(event, "must refer to a mapping, or to a list of mappings")
        return found

    def _line(self, event: Any) -> int:
        has_key = self._open and self._open[-1].key is not None
        return self._open[-1].key_line if has_key else int(event.start_mark.line) + 1

    def _error(self, event: Any, problem: str) -> SpecError:
        steps = [each.key if each.is_mapping else len(each.items) for each in self._open]
        place = reduce(below, (step for step in steps if step is not None), "")
        return SpecError(self._file, event.start_mark.line + 1, place, problem)
