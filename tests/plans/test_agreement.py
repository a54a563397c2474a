"""Every table of a file is the one of its basis, and stands where the cluster can run it."""

import json
from collections import Counter

import pytest

from fastplan.plans.basis import check_agreement
from fastplan.plans.checks import BadValue, PlacementRule, PlanFileError
from fastplan.plans.file import parse_plan, plan_text, table_entry
from tests.plans.samples import mixed_plan

RULE = PlacementRule("cuda", 4)


def is_whole(entry):
    return entry.sharding_type == "table_wise"


def is_cut(entry):
    return entry.sharding_type == "table_row_wise"


def entries_of(plan):
    return [table_entry(table, RULE) for table in plan.layout.tables]


def moved(entry):
    """Every rank of the other host, so that the table could be there."""
    return entry._replace(ranks=tuple((first ^ 4, last ^ 4) for first, last in entry.ranks))


CHANGES = {
    "name": (lambda e: e._replace(name="other"), "has table t"),
    "path": (lambda e: e._replace(path="other"), "has table t"),
    "type": (lambda e: e._replace(sharding_type="column_wise"), "by `basis`"),
    "kernel": (lambda e: e._replace(kernel="quant"), "by `basis`"),
    "ranks": (moved, "as `basis` says"),
    "shape": (lambda e: e._replace(cut=e.cut._replace(columns=((1, 3),))), "must be .*as `basis`"),
}


@pytest.mark.parametrize("is_kind", [is_whole, is_cut])
@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES)
def test_a_table_that_differs_from_the_basis_is_named(is_kind, change, problem):
    plan = mixed_plan(ranks=8, group=4)
    entries = entries_of(plan)
    check_agreement(plan.basis, entries)
    number = next(i for i, entry in enumerate(entries) if is_kind(entry))
    entries[number] = change(entries[number])
    with pytest.raises(BadValue, match=problem) as caught:
        check_agreement(plan.basis, entries)
    assert entries[number].place in str(caught.value)


def test_the_first_table_that_differs_is_named():
    plan = mixed_plan(ranks=8, group=4)
    entries = entries_of(plan)
    kinds = Counter(entry.sharding_type for entry in entries)
    assert kinds["table_wise"] and kinds["table_row_wise"]
    first, last = 0, len(entries) - 1
    for number in (last, first):
        entries[number] = entries[number]._replace(kernel="quant")
    with pytest.raises(BadValue) as caught:
        check_agreement(plan.basis, entries)
    assert entries[first].place in str(caught.value)


def test_a_table_across_two_hosts_of_the_basis_is_refused():
    content = json.loads(plan_text(mixed_plan(ranks=8, group=4)))
    table = next(
        table
        for module in content["modules"].values()
        for table in module.values()
        if table["sharding_type"] == "table_row_wise"
    )
    table["ranks"] = ["2-5"]
    with pytest.raises(PlanFileError, match="all ranks of one host of 4"):
        parse_plan(json.dumps(content).encode(), "x")
