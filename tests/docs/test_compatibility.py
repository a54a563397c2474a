"""The examples of docs/compatibility.md, with fastplan's planner and with TorchRec's own."""

import re

import pytest
import torch

from tests.docs.blocks import examples
from tests.parity.compare import plan_record, quiet
from tests.parity.small import small, small_topology

EXAMPLES = examples("compatibility.md")
OURS = "from fastplan import EmbeddingShardingPlanner"
THEIRS = "from torchrec.distributed.planner.planners import EmbeddingShardingPlanner"


# As a device's own package does when it is imported.
torch.utils.rename_privateuse1_backend("npu")


def run(code):
    built = small()
    names = {"model": built.module, "sharders": built.sharders, "topology": small_topology()}
    with quiet():
        exec(compile(code, "docs/compatibility.md", "exec"), names)
    return names


def test_there_are_examples():
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_an_example_gives_torchrecs_plan_by_the_engine_it_names(example):
    ours, theirs = run(example.code), run(example.code.replace(OURS, THEIRS))
    assert not hasattr(theirs["planner"], "last_run")
    assert plan_record(ours["plan"]) == plan_record(theirs["plan"])
    (engine,) = re.findall(r"`(native|mixed|torchrec)`\.\n```python", example.text)
    assert ours["planner"].last_run.engine == engine
