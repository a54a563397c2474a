"""YAML text as nodes, each with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from fastplan.spec import nodes, units
from fastplan.spec.nodes import MOST_LEVELS, TOO_DEEP, TOO_MANY, TWICE, Node, SpecError, below
from fastplan.spec.units import NO_TAGS, YAML_TAG, shown


def parse_yaml(text: str, file: str) -> Node:
    """The root of YAML text. `file` stands for it in errors."""
    try:
        import yaml
    except ImportError as error:
        problem = "is YAML, which needs PyYAML: pip install pyyaml, or write it as JSON"
        raise SpecError(file, None, "", problem) from error
    try:
        return _YamlReader(file, yaml).read(text)
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
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_DEEP)
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
        if self._count > nodes.MOST_NODES:
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_MANY)
        if len(self._open) + levels > MOST_LEVELS:
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_DEEP)
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
            raise self._error(event, TWICE.format(top.entries[key].line, top.key_line))

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
