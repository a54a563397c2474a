"""Parses YAML text as plain data with line numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from fastplan.files import document
from fastplan.files.document import MOST_LEVELS, TOO_DEEP, TOO_MANY, TWICE, SpecError, Step, below
from fastplan.model import units
from fastplan.model.units import NO_TAGS, YAML_TAG, Scalar, shown

Marks = dict[int, Any]  # by id of a dict or list: the line of each entry


def parse_yaml(text: str, file: str) -> tuple[Any, Callable[[tuple[Step, ...]], int | None]]:
    """Returns the content of YAML text, and a function that returns the line of a place.

    Args:
        text: The text.
        file: The name of the file in errors.

    Raises:
        SpecError: It is not YAML, or not plain data.
    """
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
    except (ValueError, OverflowError) as error:  # an escape or a version with an invalid number
        line, problem = None, str(error)
    raise SpecError(file, line, "", f"is not YAML: {problem}")


class _Open:
    """A YAML mapping or list that is not complete yet."""

    def __init__(self, is_mapping: bool, line: int, anchor: str | None, before: int) -> None:
        self.is_mapping = is_mapping
        self.line = line
        self.anchor = anchor
        self.before = before  # values before it
        self.levels = 1
        self.value: Any = {} if is_mapping else []
        self.lines: Any = {} if is_mapping else []  # of the entries
        self.merged: list[dict[str, Any]] = []  # what `<<` refers to
        self.key: str | None = None  # the key of the next value
        self.key_line = 0
        self.merging = False  # whether that key is a plain `<<`


class _YamlReader:
    """Builds data from events in a loop: `yaml.compose` overflows the stack on deep files."""

    def __init__(self, file: str, yaml: Any) -> None:
        self._file = file
        self._yaml = yaml
        self._open: list[_Open] = []
        # Each with its number of values and levels; None until it is complete.
        self._anchors: dict[str, tuple[Any, int, int] | None] = {}
        self._count = 0
        self._is_read = False
        self._root: Any = None
        self._line = 1
        self._marks: Marks = {}

    def read(self, text: str) -> tuple[Any, Callable[[tuple[Step, ...]], int | None]]:
        yaml = self._yaml
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        scalars: dict[Any, tuple[Scalar, bool]] = {}  # a cache: files repeat most of them
        while loader.check_event():
            event = loader.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                known = (event.value, event.tag, event.implicit)
                if known not in scalars:
                    scalars[known] = self._scalar(event, loader)
                value, is_merge = scalars[known]
                if is_merge and self._open:
                    top = self._open[-1]
                    top.merging = top.is_mapping and top.key is None
                self._put(event, value, event.anchor, 1, 0)
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, is_mapping=kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end(event)
            elif kind is yaml.DocumentStartEvent and self._is_read:
                raise self._error(event, "must be one document, but a second one begins here")
        return self._root, self._find_line

    def _find_line(self, steps: tuple[Step, ...]) -> int:
        value, line = self._root, self._line
        for step in steps:
            lines = self._marks.get(id(value), {})
            try:
                value, line = value[step], lines[step]
            except (KeyError, IndexError, TypeError):
                break
        return line

    def _scalar(self, event: Any, loader: Any) -> tuple[Scalar, bool]:
        """Returns the value, and whether it is the key of a merge."""
        tag = event.tag
        if tag is None or tag == "!":
            tag = loader.resolve(self._yaml.ScalarNode, event.value, event.implicit)
        try:
            return units.yaml_scalar(event.value, tag), tag == YAML_TAG + "merge"
        except ValueError as error:
            raise self._error(event, str(error)) from error

    def _alias(self, event: Any) -> None:
        name = event.anchor
        if name not in self._anchors:
            raise self._error(event, f"refers to `*{name}`, but no `&{name}` stands before it")
        anchored = self._anchors[name]
        if anchored is None:
            raise self._error(event, f"refers to `*{name}` inside `&{name}`, which is circular")
        value, size, levels = anchored
        self._put(event, value, name, size, levels)

    def _begin(self, event: Any, *, is_mapping: bool) -> None:
        if event.tag not in (None, "!", YAML_TAG + ("map" if is_mapping else "seq")):
            raise self._error(event, f"has the tag {shown(event.tag)}; {NO_TAGS}")
        if self._open and self._open[-1].is_mapping and self._open[-1].key is None:
            raise self._error(event, "must have strings as keys, not mappings or lists")
        if len(self._open) >= MOST_LEVELS:
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_DEEP)
        if event.anchor:
            self._anchors[event.anchor] = None
        line = event.start_mark.line + 1
        self._open.append(_Open(is_mapping, line, event.anchor, self._count))

    def _end(self, event: Any) -> None:
        top = self._open.pop()
        value, lines = top.value, top.lines
        if top.merged:
            value, lines = {}, {}
            for source in reversed(top.merged):
                value |= source
                lines |= self._marks[id(source)]
            value |= top.value
            lines |= top.lines
        self._marks[id(value)] = lines
        inside, self._count = self._count - top.before, top.before
        self._put(event, value, top.anchor, inside + 1, top.levels, top.line)

    def _put(
        self,
        event: Any,
        value: Any,
        anchor: str | None,
        size: int,
        levels: int,
        line: int | None = None,
    ) -> None:
        """Adds a complete value, with its number of values and levels, to the open parent."""
        self._count += size
        if self._count > document.MOST_VALUES:
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_MANY)
        if len(self._open) + levels > MOST_LEVELS:
            raise SpecError(self._file, event.start_mark.line + 1, "", TOO_DEEP)
        if anchor:
            self._anchors[anchor] = value, size, levels
        line = event.start_mark.line + 1 if line is None else line
        if not self._open:
            self._root, self._line, self._is_read = value, line, True
            return
        top = self._open[-1]
        if levels >= top.levels:
            top.levels = levels + 1
        if not top.is_mapping:
            top.value.append(value)
            top.lines.append(line)
        elif top.key is None:
            self._put_key(event, top, value)
        else:
            if top.merging:
                top.merged += self._merged(event, value)
            else:
                top.value[top.key] = value
                top.lines[top.key] = top.key_line
            top.key, top.merging = None, False

    def _put_key(self, event: Any, top: _Open, key: object) -> None:
        if not isinstance(key, str):
            raise self._error(event, f"must have strings as keys; put {shown(key)} in quotes")
        top.key, top.key_line = key, event.start_mark.line + 1
        if key in top.value and not top.merging:
            raise self._error(event, TWICE.format(top.lines[key], top.key_line))

    def _merged(self, event: Any, value: Any) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        found = [source for source in sources if isinstance(source, dict)]
        if len(found) != len(sources):
            raise self._error(event, "must refer to a mapping, or to a list of mappings")
        return found

    def _error(self, event: Any, problem: str) -> SpecError:
        steps = [each.key if each.is_mapping else len(each.value) for each in self._open]
        place = reduce(below, (step for step in steps if step is not None), "")
        return SpecError(self._file, event.start_mark.line + 1, place, problem)
