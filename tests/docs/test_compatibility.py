"""The examples of docs/compatibility.md, with fastplan's planner and with TorchRec's own."""

import re
from multiprocessing import get_context

import pytest
import torch

from tests.docs.blocks import examples
from tests.parity.compare import plan_record, quiet
from tests.parity.small import small, small_topology

EXAMPLES = examples("compatibility.md")
OURS = "from fastplan import EmbeddingShardingPlanner"
THEIRS = "from torchrec.distributed.planner.planners import EmbeddingShardingPlanner"


def run(code):
    """The names that the example leaves behind."""
    built = small()
    names = {"model": built.module, "sharders": built.sharders, "topology": small_topology()}
    with quiet():
        exec(compile(code, "docs/compatibility.md", "exec"), names)
    return names


def check(example):
    ours, theirs = run(example.code), run(example.code.replace(OURS, THEIRS))
    assert not hasattr(theirs["planner"], "last_run")
    assert plan_record(ours["plan"]) == plan_record(theirs["plan"])
    (engine,) = re.findall(r"`(native|mixed|torchrec)`\.\n```python", example.text)
    assert ours["planner"].last_run.engine == engine


def check_on_a_new_device(number):
    """As its own package does when it is imported; torch can't take the name back."""
    torch.utils.rename_privateuse1_backend("npu")
    check(EXAMPLES[number])


def test_there_are_examples():
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=[each.title for each in EXAMPLES])
def test_an_example_gives_torchrecs_plan_by_the_engine_it_names(number):
    if "npu" not in EXAMPLES[number].code:
        check(EXAMPLES[number])
        return
    with get_context("spawn").Pool(1) as pool:
        pool.apply(check_on_a_new_device, (number,))
