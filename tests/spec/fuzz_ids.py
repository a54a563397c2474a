"""Fuzz target for statistics files.

Whatever the bytes, reading them returns or raises SpecError, and what was read survives being
written and read again.
"""

from __future__ import annotations

import json
import random

from fastplan.files.document import SpecError, parse_document
from fastplan.spec.ids import statistics_in, statistics_text
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.spec.test_ids import BOTH

TEXT = statistics_text(BOTH)
POINTS = [[[1, 0.5]], [[1, 0], [2, 1]], [0.5, 1], [[1e18, 1]], [[-1, 0]], 100, "1e3", "nan"]


def check(tried: bytes) -> None:
    try:
        found = statistics_in(parse_document(tried, "ids.json"))
    except SpecError:
        return
    for ids in found.values():
        ids.missed(1e6, 1e3)
    text = statistics_text(found)
    again = statistics_in(parse_document(text.encode(), "again.json"))
    assert again == found and statistics_text(again) == text


def draw(draw: random.Random) -> bytes:
    """A good file with a few changes, as data or as text."""
    if draw.random() < 0.5:
        return json.dumps(changed_data(draw, json.loads(TEXT), VALUES + POINTS)).encode()
    return changed_bytes(draw, TEXT.encode(), TOKENS)


TARGET = Target(draw, check)
