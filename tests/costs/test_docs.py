"""The page about custom costs runs, and names every field."""

import re
from pathlib import Path

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

from fastplan.core import _native
from tests.parity.compare import quiet
from tests.parity.small import small_model, small_topology

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "custom-cost.md").read_text()


def test_the_examples_run_one_after_the_other():
    names = {
        "module": small_model(2),
        "topology": small_topology(2),
        "sharders": [EmbeddingBagCollectionSharder()],
    }
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    with quiet():
        for block in blocks:
            exec(compile(block, "custom-cost.md", "exec"), names)
    assert names["planner"].last_run.engine == "native"


def test_every_field_is_named():
    shard, rank = _native.SHARD_DTYPE, _native.RANK_DTYPE
    nested = [shard[name] for name in ("bandwidths", "model", "stock")]
    for dtype in (shard, rank, *nested):
        for name in dtype.names:
            assert f"`{name}`" in PAGE or f"`{name}.`" in PAGE, name
