"""docs/custom-cost.md: its examples run one after the other, and it names every field."""

from fastplan.engine import _native
from tests.docs.blocks import DOCS, examples
from tests.parity.compare import quiet
from tests.parity.small import small, small_topology

PAGE = "custom-cost.md"


def test_the_examples_run_and_end_with_one_plan_by_both_planners():
    built = small(count=2)
    names = {"module": built.module, "sharders": built.sharders, "topology": small_topology(2)}
    code = "\n".join(example.code for example in examples(PAGE))
    assert "assert theirs.plan(module, sharders).plan == plan.plan" in code
    with quiet():
        exec(compile(code, f"docs/{PAGE}", "exec"), names)
    assert names["planner"].last_run.engine == "native"
    assert len(names["objectives"]) == 3


def test_every_field_is_named():
    page = (DOCS / PAGE).read_text()
    shard, rank = _native.SHARD_DTYPE, _native.RANK_DTYPE
    nested = [shard[name] for name in ("bandwidths", "model", "stock")]
    for dtype in (shard, rank, *nested):
        for name in dtype.names:
            assert f"`{name}`" in page or f"`{name}.`" in page, name
