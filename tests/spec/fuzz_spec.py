"""Fuzz target for spec files, YAML and JSON.

Whatever the bytes, reading a spec returns or raises SpecError, and what was read survives being
written and read again. What can be read can be planned, or there is a CannotPlan, a HardwareError
or,
for sizes that no machine has, an OutOfRange.
"""

from __future__ import annotations

import json
import random

from fastplan.engine.solve import OutOfRange, estimate
from fastplan.files.document import SpecError, parse_document
from fastplan.model.job import CannotPlan
from fastplan.spec.hardware import HardwareError
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec
from fastplan.spec.read import spec_of
from fastplan.spec.write import spec_text, to_plain
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.spec.test_read import SECTIONS
from tests.spec.test_write import FULL

# More of what a cost model can say than a usual spec has, and a reference.
FLAT = SECTIONS.replace("a.ebc: {", "a.ebc: &shared {").replace("b.ec: {", "b.ec: {<<: *shared, ")
FLAT = FLAT.replace(
    "at_peak_memory: true}",
    "at_peak_memory: true, perf_world_size: 16, storage_group_size: 8,\n"
    "  prefetch_coefficients: [1, 0.5, 0], layout_rank_memory: [80, 40]}",
)
YAML = [b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system", b"!", b"- ", b": ", b"\n", b"\t"]
YAML += [b"---\n", b"? ", b"|\n", b"# ", b"1_000", b"0o17", b"1:30", b".inf", b"4GiB", b"2.5M"]
WORDS = ["16MiB", "900GB/s", "1.5M", "-1", "nan", ".inf", "row_wise", "fused", "fp16", "adam"]
WORDS += ["1.9.2", "h100", "greedy", [0.5, 1e9], [2, 2, 2, 2], {"kind": "greedy"}]
PLAIN = [to_plain(FULL), to_plain(spec_of(parse_document(FLAT.encode(), "")))]
TEXTS = [FLAT, spec_text(FULL), *map(json.dumps, PLAIN)]
# More would only take long.
MOST_RANKS, MOST_TABLES = 1 << 10, 64


def check(tried: bytes) -> None:
    try:
        spec = spec_of(parse_document(tried, "model"))
    except SpecError:
        return
    text = spec_text(spec)
    assert spec_text(spec_of(parse_document(text.encode(), "again.yaml"))) == text
    _plan(spec)


def _plan(spec: ModelSpec) -> None:
    ranks = spec.topology.world_size if spec.topology else None
    if spec.shard_cost or spec.objective or (ranks or 1) > MOST_RANKS:
        return
    try:
        job = lower(spec)
        if len(job.request.tables) <= MOST_TABLES:
            estimate(job.request)
    except (CannotPlan, HardwareError, OutOfRange):
        return


def draw(draw: random.Random) -> bytes:
    """A good spec with a few changes, as data or as text."""
    if draw.random() < 0.5:
        good = PLAIN[draw.random() < 0.7]  # the first one's sizes are no machine's
        return json.dumps(changed_data(draw, good, VALUES + WORDS)).encode()
    return changed_bytes(draw, draw.choice(TEXTS).encode(), TOKENS + YAML)


TARGET = Target(draw, check)
