"""Fuzz target for SKU files.

Whatever the bytes, reading a SKU file returns hardware or raises SpecError, and what was read has
constants that a job can be planned with.
"""

from __future__ import annotations

import json
import random

from fastplan.files.document import SpecError, parse_document
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME, COST_GROUPS
from fastplan.spec.hardware import HardwareError, for_job, hardware_constants, read_hardware
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.spec.test_sku_files import COMPLETE

_COSTS = {
    group: {
        name.partition(".")[2]: {"value": 1.5, "low": 1, "high": 2, "n": 3, "source": "run"}
        for name in [*CONSTANTS_BY_NAME]
        if name.startswith(f"{group}.")
    }
    for group in COST_GROUPS
}
_PLAIN = [
    {"skus": {"a": COMPLETE, "b": {"like": "a", "host_ddr": "1TiB", "aliases": ["c", "d e"]}}},
    {"name": "mine", "like": "h100", "price": 2, "pod_size": 64, "sources": {"hbm": "vendor"}},
    {"like": "h100", "costs": _COSTS, "costs_from": "h100"},
]
_WORDS = ["16MiB", "900GB/s", "a", "b", "c", "h100", "cpu", "cuda", "nan", ".inf", 1e-300, 1 << 62]


def check(tried: bytes) -> None:
    try:
        found = read_hardware(parse_document(tried, "lab.json"))
    except SpecError:
        return
    for hardware in found:
        try:
            constants = hardware_constants(hardware)
            for_job(hardware, 16)
        except HardwareError:
            continue
        assert all(0 <= constant < float("inf") for constant in constants)


def draw(draw: random.Random) -> bytes:
    """A good file with a few changes, as data or as text."""
    good = draw.choice(_PLAIN)
    if draw.random() < 0.6:
        return json.dumps(changed_data(draw, good, VALUES + _WORDS)).encode()
    return changed_bytes(draw, json.dumps(good).encode(), TOKENS)


TARGET = Target(draw, check)
