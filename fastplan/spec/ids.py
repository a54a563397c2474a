"""Id statistics in files: `ids` of a table in a spec, and files of their own.

A statistics file is JSON or YAML:

    {"format": "fastplan id statistics", "version": 1, "tables": [{"name": "t0", "ids": ...}, ...]}

Annotations are not strings, because msgspec would have to evaluate those at every start.
"""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct, structs

from fastplan.files.codec import decode
from fastplan.files.document import Document, Step, read_document
from fastplan.files.kinds import Text, number, whole, with_problem
from fastplan.files.storage import replace_file
from fastplan.model.ids import MOST_ZIPF, Curve, IdStatistics
from fastplan.model.units import shown

FORMAT = "fastplan id statistics"
VERSION = 1
MOST_POINTS = 1000  # of a curve

CURVES = ("unique", "misses", "hottest", "pooling_quantiles")
_NUMBERS = ("ids", "samples", "zipf", "zipf_error", "followed")

Count = Annotated[int, whole(1)]
Coordinate = Annotated[float, number(0)]
Points = tuple[
    Annotated[tuple[Coordinate, Coordinate], with_problem("must be two numbers, x and y")], ...
]
Deviation = Annotated[float, number(0, MOST_ZIPF)]


class IdFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of IdStatistics, with curves as points [[x, y], ...]."""

    ids: Count
    samples: Count
    unique: Points
    misses: Points
    hottest: Points | None = None
    pooling_quantiles: Points | None = None
    zipf: Deviation | None = None
    zipf_error: Deviation | None = None
    followed: Annotated[float, number(0, 1)] | None = None


class NamedIds(IdFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ids of a table in a statistics file."""

    name: Text


class StatisticsFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statistics file."""

    format: Text
    version: Count
    tables: tuple[NamedIds, ...]


def statistics_of(fields: IdFields) -> IdStatistics:
    """Returns the statistics in fields of a file.

    Raises:
        ValueError: A curve has no points, too many or invalid ones. The message names the field.
    """
    curves: dict[str, Any] = {name: _curve(name, getattr(fields, name)) for name in CURVES}
    return IdStatistics(**curves, **{name: getattr(fields, name) for name in _NUMBERS})


def _curve(name: str, points: Points | None) -> Curve | None:
    if points is None:
        return None
    if len(points) > MOST_POINTS:
        raise ValueError(f"`{name}` must have at most {MOST_POINTS} points, not {len(points)}")
    try:
        return Curve.of(points)
    except ValueError as error:
        problem = "must have at least one point" if not points else str(error)
        raise ValueError(f"`{name}`: {problem}") from error


def fields_of(ids: IdStatistics) -> IdFields:
    """Returns statistics as the fields of a file."""
    curves = {name: getattr(ids, name) for name in CURVES}
    points: dict[str, Any] = {
        name: None if curve is None else tuple(zip(curve.x, curve.y, strict=True))
        for name, curve in curves.items()
    }
    return IdFields(**points, **{name: getattr(ids, name) for name in _NUMBERS})


def check_ids(document: Document, steps: tuple[Step, ...], fields: IdFields) -> IdStatistics:
    """Returns the statistics at a place of a document.

    Raises:
        SpecError: They are invalid. The message says where.
    """
    try:
        return statistics_of(fields)
    except ValueError as error:
        raise document.error(steps, str(error)) from error


def read_statistics(path: "str | os.PathLike[str]") -> "dict[str, IdStatistics]":
    """Reads a statistics file.

    Args:
        path: The file.

    Returns:
        The statistics by the name of the table.

    Raises:
        SpecError: The file is invalid. The message has file, line, field and what to do.
    """
    return statistics_in(read_document(path))


def statistics_in(document: Document) -> dict[str, IdStatistics]:
    """Returns the statistics in a document, by the name of the table.

    Raises:
        SpecError: The document is not a valid statistics file.
    """
    root = document.root
    if not isinstance(root, dict) or root.get("format") != FORMAT:
        found = root.get("format") if isinstance(root, dict) else root
        problem = f"must be {FORMAT!r}, not {shown(found)}; `fastplan profile` writes such files"
        raise document.error(("format",), problem)
    if root.get("version") != VERSION:
        problem = f"must be {VERSION}, the only one that can be read, not "
        raise document.error(("version",), problem + shown(root.get("version")))
    found = {}
    for i, table in enumerate(decode(document, StatisticsFile).tables):
        if table.name in found:
            problem = f"two tables are called {shown(table.name)}"
            raise document.error(("tables", i, "name"), problem)
        found[table.name] = check_ids(document, ("tables", i), table)
    return found


def write_statistics(
    statistics: "Mapping[str, IdStatistics]", path: "str | os.PathLike[str]"
) -> "None":
    """Writes a statistics file.

    Args:
        statistics: The statistics by the name of the table.
        path: The file.

    Raises:
        OSError: The file can't be written.
    """
    replace_file(path, [statistics_text(statistics).encode()])


def statistics_text(statistics: Mapping[str, IdStatistics]) -> str:
    """Returns the text of a statistics file, with a line per table."""
    tables = [
        json.dumps({"name": name, **_plain(fields_of(ids))}) for name, ids in statistics.items()
    ]
    rows = "".join(f"\n    {each}," for each in tables).removesuffix(",")
    start = f'  "format": {json.dumps(FORMAT)},\n  "version": {VERSION},\n'
    return "{\n" + start + f'  "tables": [{rows}\n  ]\n' + "}\n"


def _plain(fields: IdFields) -> dict[str, Any]:
    given = structs.asdict(fields).items()
    return {name: _value(value) for name, value in given if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    is_whole = isinstance(value, float) and value.is_integer() and value < 1 << 53
    return int(value) if is_whole else value
