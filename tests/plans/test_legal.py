"""Ranks that TorchRec can't run are refused, by sharding type; those of its own plans are not."""

import json

import pytest

from fastplan.plans.checks import BadValue, PlanFileError
from fastplan.plans.document import Ranks, check_ranks
from fastplan.plans.entries import EntryReader
from fastplan.plans.file import parse_plan, plan_text
from tests.plans.samples import SEEDS, random_plan

HOSTS = Ranks(8, 4)


def table(kind, ranks, name="t", path="m"):
    """A table of that type, cut as the type cuts it."""
    count = len(ranks)
    fields = {"sharding_type": kind, "compute_kernel": "fused", "ranks": ranks}
    if kind == "data_parallel":
        fields["shards"] = None
    elif kind == "grid_shard":
        fields |= {
            "shape": [4, 8],
            "row_blocks": ["4 x 1"],
            "column_blocks": [f"{count // 4} x {32 // count}"],
        }
    elif "row" in kind:
        fields |= {"shape": [count, 8], "row_blocks": [f"{count} x 1"]}
    else:
        fields |= {"shape": [4, 4 * count], "column_blocks": [f"{count} x 4"]}
    return EntryReader(has_device=True).read(path, name, fields)


LEGAL = [
    ("row_wise", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("data_parallel", [0, 1, 2, 3, 4, 5, 6, 7]),
    ("table_wise", [7]),
    ("column_wise", [3, 3, 0, 7]),
    ("table_row_wise", [4, 5, 6, 7]),
    ("table_row_wise", [6, 7, 5, 4]),
    ("table_column_wise", [5, 4, 5]),
    ("table_column_wise", [3, 4]),
    ("grid_shard", [4, 5, 6, 7, 0, 1, 2, 3]),
    ("grid_shard", [4, 5, 6, 7, 4, 5, 6, 7]),
    ("of_my_own", [9, 9]),
]
NEVER = [
    ("row_wise", [0, 0, 0, 0]),
    ("row_wise", [0, 1, 2, 1]),
    ("data_parallel", [0, 1, 1]),
    ("table_wise", [0, 1]),
    ("table_row_wise", [4, 4, 4, 4]),
    ("grid_shard", [4, 5, 6, 6, 0, 1, 2, 3]),
]
NOT_HERE = [
    ("row_wise", [0, 1, 2, 3]),
    ("row_wise", [7, 6, 5, 4, 3, 2, 1, 0]),
    ("data_parallel", [0, 1, 2, 3]),
    ("table_wise", [99]),
    ("column_wise", [0, 8]),
    ("table_row_wise", [3, 4, 5, 6]),
    ("table_row_wise", [0, 1]),
    ("grid_shard", [0, 1, 2, 3, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("kind", "ranks"), LEGAL)
def test_what_torchrec_can_run_is_taken(kind, ranks):
    check_ranks([table(kind, ranks)])
    if max(ranks) < 8:
        check_ranks([table(kind, ranks)], HOSTS)


@pytest.mark.parametrize(("kind", "ranks"), NEVER)
def test_what_runs_nowhere_is_refused(kind, ranks):
    with pytest.raises(BadValue) as refused:
        check_ranks([table(kind, ranks)])
    assert refused.value.place == "modules.m.t.ranks"


@pytest.mark.parametrize(("kind", "ranks"), NOT_HERE)
def test_what_does_not_run_on_a_cluster_is_refused_there(kind, ranks):
    check_ranks([table(kind, ranks)])
    with pytest.raises(BadValue) as refused:
        check_ranks([table(kind, ranks)], HOSTS)
    assert refused.value.place == "modules.m.t.ranks"


def test_a_row_wise_table_tells_the_ranks_of_its_module():
    whole = table("row_wise", [0, 1, 2, 3])
    check_ranks([table("table_wise", [3], "u"), whole])
    check_ranks([whole, table("table_wise", [99], "u", path="other")])
    with pytest.raises(BadValue, match=r"u\.ranks\[0\]: must be among \['0-3'\]"):
        check_ranks([table("table_wise", [99], "u"), whole])
    with pytest.raises(BadValue, match=r"u\.ranks: must be \['0-3'\], as of"):
        check_ranks([whole, table("row_wise", [*range(8)], "u")])


def test_ranks_of_a_replica_group_are_taken():
    """As DMPCollection leaves them in its plan."""
    check_ranks([table("row_wise", [1, 3, 5, 7]), table("table_row_wise", [1, 3], "u")])


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_of_the_planner_are_taken(seed):
    text = plan_text(random_plan(seed))
    assert plan_text(parse_plan(text.encode(), "plan.json")) == text
    bare = json.loads(text)
    bare.pop("basis")
    parse_plan(json.dumps(bare).encode(), "plan.json")


def test_a_file_with_such_ranks_is_refused_by_name():
    content = json.loads(plan_text(random_plan(SEEDS[0])))
    content.pop("basis")
    content["modules"] = {
        "m": {
            "t": {
                "sharding_type": "row_wise",
                "compute_kernel": "fused",
                "shape": [4, 4],
                "row_blocks": ["4 x 1"],
                "ranks": [0, 0, 0, 0],
            }
        }
    }
    with pytest.raises(PlanFileError, match=r"modules.m.t.ranks: must be different ranks"):
        parse_plan(json.dumps(content).encode(), "plan.json")
