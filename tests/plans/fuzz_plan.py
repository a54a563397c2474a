"""Fuzz target for plan files, fastplan's own and others'.

Whatever the bytes, reading them returns a plan or raises PlanFileError, and a plan that was read
survives being written and read again.
"""

from __future__ import annotations

import json
import random

from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import parse_plan, plan_text
from fastplan.plans.foreign import parse_any
from tests.fuzzing import TOKENS, VALUES, Target, changed_bytes, changed_data
from tests.plans.samples import SEEDS, mixed_plan, random_plan
from tests.plans.test_printed import SAMPLE
from tests.plans.test_tables_json import SERIALIZED

PLAIN = [json.loads(plan_text(random_plan(seed))) for seed in SEEDS[:6]]
PLAIN += [json.loads(plan_text(mixed_plan())), SERIALIZED]
TEXTS = [*(json.dumps(each).encode() for each in PLAIN), SAMPLE.read_bytes()]
WORDS = ["row_wise", "table_wise", "data_parallel", "fused", "dense", "rank:0/cuda:0", "rank:9/cpu"]


def check(tried: bytes) -> None:
    try:
        plan = parse_any(tried, "plan")
    except PlanFileError:
        return
    text = plan_text(plan)
    assert plan_text(parse_plan(text.encode(), "plan")) == text


def draw(draw: random.Random) -> bytes:
    """A good file with a few changes, as data or as text."""
    if draw.random() < 0.6:
        return json.dumps(changed_data(draw, draw.choice(PLAIN), VALUES + WORDS)).encode()
    return changed_bytes(draw, draw.choice(TEXTS), TOKENS)


TARGET = Target(draw, check)
