"""The curves of id statistics in canonical requests."""

from __future__ import annotations

from typing import Any

from fastplan.model.ids import Curve
from fastplan.model.request import IdCurves

_NAMES = list(IdCurves._fields)
_MOST_POINTS = 10_000  # more than any curve has


def curves_json(ids: tuple[IdCurves | None, ...]) -> list[Any]:
    """Returns the curves by table as JSON: x and y of each curve, None without statistics."""
    return [
        None
        if own is None
        else {name: [[*curve.x], [*curve.y]] for name, curve in own._asdict().items()}
        for own in ids
    ]


def parse_curves(value: Any, tables: int, place: str) -> tuple[IdCurves | None, ...]:
    """Returns the curves by table from JSON.

    Args:
        value: What `curves_json` returns. At least one table must have curves, so that a request
            without statistics has one form only.
        tables: The number of tables.
        place: The field, for messages.

    Raises:
        ValueError: The value is something else. The message names the place.
    """
    if type(value) is not list or len(value) != tables or not any(value):
        raise ValueError(f"{place}: must have curves or null for each of {tables} tables")
    found: list[IdCurves | None] = []
    for i, own in enumerate(value):
        if own is not None and (type(own) is not dict or sorted(own) != sorted(_NAMES)):
            raise ValueError(f"{place}[{i}]: must be null, or have {' and '.join(_NAMES)}")
        found.append(
            None
            if own is None
            else IdCurves(*(_curve(own[name], f"{place}[{i}].{name}") for name in _NAMES))
        )
    return tuple(found)


def _curve(value: Any, place: str) -> Curve:
    is_pair = type(value) is list and len(value) == 2
    if not is_pair or not all(type(each) is list and len(each) <= _MOST_POINTS for each in value):
        raise ValueError(f"{place}: must be two lists, the x and the y of at most 10000 points")
    if not {*map(type, value[0]), *map(type, value[1])} <= {int, float}:
        raise ValueError(f"{place}: must be numbers")
    try:
        curve = Curve(tuple(value[0]), tuple(value[1]))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place}: {error}") from None
    if not all(0 <= share <= 1 for share in curve.y):
        raise ValueError(f"{place}: must be shares between 0 and 1")
    return curve
