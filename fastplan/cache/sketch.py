"""How alike two models are, told from the names of their entries without reading them.

A sketch has, for each of 36 orders of all table names, four bits of the first name in that order.
Two sketches agree in about as many places as the models share tables (MinHash). It is part of an
entry's name, so listing a store is enough to find the few entries that are worth reading.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np

TableName = tuple[str, str]  # path of the module, name of the table

_PLACES = 36
_MOST_TABLES = 1 << 20
_NAME = re.compile(rf"[0-9a-f]{{20}}-([0-9a-f]{{4}})([0-9a-f]{{{_PLACES}}})")
_MIX = np.uint64(0x9E3779B97F4A7C15)
# Each odd factor puts all hashes into an order of its own.
_FACTORS = [np.uint64(pow(0xD1342543DE82EF95, place + 1, 1 << 64) | 1) for place in range(_PLACES)]


def names_in(document: dict[str, Any]) -> frozenset[TableName]:
    """The tables of a canonical request that was read as JSON.

    Raises ValueError, LookupError or TypeError for a document that is something else.
    """
    count = document["table_count"]
    if type(count) is not int or not 0 < count <= _MOST_TABLES:
        raise ValueError("`table_count` is not a number of tables")
    columns = [_column(document["tables"][name], count) for name in ("path", "name")]
    names = frozenset(zip(*columns, strict=False))
    if len(names) != count:
        raise ValueError("a table is there twice")
    return names


def _column(column: Any, count: int) -> Iterable[str]:
    """A column of texts; one that is the same for all tables is not written out."""
    same = type(column) is dict
    texts = [column["all"]] if same else column
    if type(texts) is not list or not all(type(text) is str for text in texts):
        raise TypeError("tables are named by texts")
    if not same and len(texts) != count:
        raise ValueError("a column has another length than there are tables")
    return repeat(texts[0], count) if same else texts


def sketch_of(names: Iterable[TableName]) -> str:
    """The sketch of a model's tables."""
    hashes = [zlib.crc32(f"{path}\0{name}".encode("utf-8", "replace")) for path, name in names]
    mixed = (np.array(hashes, np.uint64) + np.uint64(1)) * _MIX
    first = np.array([(mixed * factor).min() for factor in _FACTORS])
    # The first of many is small, so its lower bits are mixed again.
    return "".join(f"{int(bits):x}" for bits in (first * _MIX) >> np.uint64(60))


def likeness(one: str, other: str) -> float:
    """About the part of both models' tables that both have."""
    return sum(map(str.__eq__, one, other)) / _PLACES


def entry_name(capacities: str, ranks: int, sketch: str) -> str:
    """The name of an entry for devices like these, given by a hash, and for this model."""
    return f"{capacities}-{ranks & 0xFFFF:04x}{sketch}"


def read_name(name: str) -> tuple[int, str] | None:
    """The ranks, modulo 65,536, and the sketch in an entry's name; None if it has none."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1], 16), found[2])
