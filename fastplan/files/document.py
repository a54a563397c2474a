"""Documents: YAML or JSON files as plain data with line numbers.

Reading any bytes returns a Document or raises a SpecError with place and reason. Files are only
data: tags and names in them never select a class.
"""

from __future__ import annotations

import errno
import json
import math
import numbers
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any, BinaryIO, Literal

from fastplan.model import units
from fastplan.model.units import Scalar, shown

MOST_BYTES = 64 << 20
MOST_VALUES = 2_000_000  # counting every alias
MOST_LEVELS = 100
TOO_DEEP = f"is nested more than {MOST_LEVELS} levels deep"
TOO_MANY = f"has more than {MOST_VALUES:,} values, counting every alias"
TWICE = "occurs twice, in lines {} and {}; keep one"

Format = Literal["json", "yaml"]
Step = str | int  # the key of a mapping, or the index of a list

_SHOWN = 80  # characters at either end of a long place
_SUFFIXES: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_JSON_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_JSON_VALUE = rf'(?:({_JSON_TEXT})\s*:\s*)?({_JSON_TEXT}|[\[{{\]}}]|[^\s\[\]{{}},:"]+)'


class SpecError(ValueError):
    """An invalid file. The message has the file, line, place and problem."""

    def __init__(self, file: str, line: int | None, place: str, problem: str) -> None:
        super().__init__(file, line, place, problem)
        self.file = file
        self.line = line
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        place = self.place
        if len(place) > 2 * _SHOWN:
            place = f"{place[:_SHOWN]}...{place[-_SHOWN:]}"
        return ": ".join(part for part in (where, place, self.problem) if part)


def below(place: str, step: Step) -> str:
    """Returns the place of an entry: `tables[3]`, `tables[3].rows`, `groups["a b"]`."""
    if isinstance(step, int):
        return f"{place}[{step}]"
    if step.replace("-", "_").isidentifier():
        return f"{place}.{step}" if place else step
    return f"{place}[{json.dumps(step)}]"


class Document:
    """A file's content as plain data: dicts, lists, strings, numbers, booleans and None.

    Attributes:
        file: The name of the file in errors.
        root: The content.
    """

    __slots__ = ("_line", "file", "root")

    def __init__(self, file: str, root: Any, line: Callable[[tuple[Step, ...]], int | None]):
        self.file = file
        self.root = root
        self._line = line

    def at(self, steps: tuple[Step, ...]) -> Any:
        """Returns the value at a place."""
        return reduce(lambda value, step: value[step], steps, self.root)

    def line(self, steps: tuple[Step, ...]) -> int | None:
        """Returns the line of a place, or of its parent; None for data that is not from a file."""
        return self._line(steps)

    def error(
        self, steps: tuple[Step, ...], problem: str, *, line_of: tuple[Step, ...] | None = None
    ) -> SpecError:
        """Returns the error for a problem at a place.

        Args:
            steps: Keys and indices from the root to the place.
            problem: The problem there.
            line_of: The place whose line the error has, if different.
        """
        line = self._line(steps if line_of is None else line_of)
        return SpecError(self.file, line, reduce(below, steps, ""), problem)


def read_document(path: str | os.PathLike[str]) -> Document:
    """Reads a file, as JSON or YAML by its suffix, or else by its first characters.

    Args:
        path: The file.

    Raises:
        SpecError: The file can't be read, or is neither YAML nor JSON.
    """
    file = os.fspath(path)
    try:
        with open_regular(file) as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        reason = getattr(error, "strerror", None) or error
        raise SpecError(file or "''", None, "", f"can't be read: {reason}") from error
    return parse_document(data, file)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading. It never waits for the writer of a pipe.

    Args:
        path: The file. Links are followed.

    Raises:
        OSError: It can't be opened, or is a pipe or a device.
        ValueError: No file can have this path.
    """
    stream = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device", os.fspath(path))
    return stream


def parse_document(text: bytes, name: str, *, format: Format | None = None) -> Document:
    """Parses the content of a file.

    Args:
        text: The content.
        name: The name of the file in errors. By default its suffix selects the format.
        format: The format; overrides the suffix.

    Raises:
        SpecError: The text is too large, or is neither YAML nor JSON.
    """
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
    from fastplan.files.yaml_text import parse_yaml

    return Document(name, *parse_yaml(decoded, name))


def document_of(value: Any, name: str) -> Document:
    """Returns plain Python data (mappings, lists, strings and numbers) as a document.

    Args:
        value: The data.
        name: The name of the file in errors.

    Raises:
        SpecError: It is not plain data.
    """
    return Document(name, _PlainReader(name, None).read(value), lambda steps: None)


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _PlainReader:
    """Checks and copies plain Python data, such as the result of `json` for `json_text`."""

    def __init__(self, file: str, json_text: str | None) -> None:
        self._file = file
        self._json_text = json_text
        self._steps: list[Step] = []
        self._count = 0

    def read(self, value: Any) -> Any:
        if not isinstance(value, (dict, list, tuple)):
            return self._scalar(value)
        self._count += len(value)
        if self._count > MOST_VALUES:
            raise SpecError(self._file, None, "", TOO_MANY)
        if len(self._steps) >= MOST_LEVELS:
            raise SpecError(self._file, None, "", TOO_DEEP)
        if not isinstance(value, dict):
            return [self._child(i, item) for i, item in enumerate(value)]
        for key in value:
            if not isinstance(key, str) or units.is_broken(key):
                raise self._error(f"must have strings as keys, not {shown(key)}")
        return {key: self._child(key, item) for key, item in value.items()}

    def _child(self, step: Step, item: Any) -> Any:
        kind = type(item)
        if item.isascii() if kind is str else kind is int and 0 <= item <= units.LARGEST:
            return item  # a shortcut for most values
        self._steps.append(step)
        item = self.read(item)
        self._steps.pop()
        return item

    def _scalar(self, value: Any) -> Scalar:
        if isinstance(value, str):
            if units.is_broken(value):
                raise self._error(f"must be a string without lone surrogates, not {shown(value)}")
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
        line = None if self._json_text is None else _json_line(self._json_text, self._steps)
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
        place, first, second = _first_twice(text)
        raise SpecError(file, second, place, TWICE.format(first, second)) from error
    root = _PlainReader(file, text).read(value)
    return Document(file, root, lambda steps: _json_line(text, steps))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise KeyError
    return entries


def _json_line(text: str, steps: Sequence[Step]) -> int:
    """Returns the line of a place, or of its parent if the place does not exist."""
    found = 1
    is_on_the_way = [True]  # by depth, of the value that was read last
    for depth, step, line in _json_values(text):
        leads = depth == 0 or (is_on_the_way[depth - 1] and step == steps[depth - 1])
        is_on_the_way[depth:] = [leads and depth < len(steps)]
        if leads:
            found = line
            if depth == len(steps):
                return found
    return found


def _first_twice(text: str) -> tuple[str, int, int]:
    """Returns the place of the first key that an object has twice, and both lines."""
    lines: list[dict[Step | None, int]] = []  # by depth
    way: list[Step] = []
    for depth, step, line in _json_values(text):
        lines[depth + 1 :] = []
        way[max(depth - 1, 0) :] = [] if step is None else [step]
        if depth == len(lines):
            lines.append({})
        if step in lines[depth]:
            return reduce(below, way, ""), lines[depth][step], line
        lines[depth][step] = line
    raise AssertionError("no key is there twice")


def _json_values(text: str) -> Iterator[tuple[int, Step | None, int]]:
    """Yields depth, key or index, and line of every value of valid JSON.

    It is slow, and only errors use it. It builds no place: a long name may have a million values.
    """
    line, counted = 1, 0
    items: list[int] = []  # the number of items so far, by container
    for token in re.finditer(_JSON_VALUE, text):
        line += text.count("\n", counted, token.start())
        counted = token.start()
        key, value = token.groups()
        if value in ("]", "}"):
            items.pop()
            continue
        step = None if not items else items[-1] if key is None else json.loads(key)
        yield len(items), step, line
        if items:
            items[-1] += 1
        if value in ("[", "{"):
            items.append(0)
