"""A plan for other tables than the module's is refused, and the difference is told."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torchrec")

from torch import nn
from torchrec.distributed.types import ShardingPlan

from fastplan.torchrec.plan_files import PlanMismatch, check_module
from tests.parity.compare import quiet
from tests.parity.draw import Draw
from tests.parity.models import META, MODULES, bag_collection, make_sharder
from tests.parity.small import small, small_model, small_tables
from tests.parity.subject import FastPlanner

from .plans import SEEDS, made


def plan_of(module: nn.Module, count: int = 4) -> ShardingPlan:
    built = small(module=module, count=count)
    with quiet():
        return FastPlanner(**built.planner_kwargs).plan(built.module, built.sharders)


def nested(*parts: nn.Module) -> nn.Module:
    root = nn.Module()
    root.over = nn.Linear(4, 4, device=META)
    for i, part in enumerate(parts):
        setattr(root, f"sparse{i}", part)
    return root


def mismatch(plan: ShardingPlan, module: nn.Module, sharders: Any = None) -> PlanMismatch:
    with pytest.raises(PlanMismatch) as caught:
        check_module(plan, module, sharders, "plan.json")
    return caught.value


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_a_plan_matches_the_module_it_was_made_for(seed: int) -> None:
    plan, built = made(seed)
    tables = [(path, name) for path, tables in plan.plan.items() for name in tables]
    for sharders in (None, built.sharders):
        found = check_module(plan, built.module, sharders, "")
        assert sorted(found) == sorted(tables)


def test_holders_and_parameters_are_found() -> None:
    module = nested(small_model())
    holder, parameter = check_module(plan_of(module), module, None, "")["sparse0", "table_1"]
    assert holder is module.sparse0
    assert parameter is module.sparse0.embedding_bags["table_1"].weight


def test_missing_unknown_and_changed_tables_are_told_apart() -> None:
    plan = plan_of(nested(small_model()))
    tables = small_tables()
    tables[0] = replace(tables[0], name="new")
    tables[1] = replace(tables[1], rows=7, dim=8)
    error = mismatch(plan, nested(bag_collection(tables)))
    assert error.missing == ("sparse0.new",)
    assert error.unknown == ("sparse0.table_0",)
    assert error.changed == ("sparse0.table_1 is 7 x 8, planned 1000 x 128",)
    assert str(error) == (
        "plan.json does not match the module: "
        "1 of the module's tables are not in the plan: sparse0.new; "
        "1 of the plan's tables are not in the module: sparse0.table_0; "
        "1 have a different shape: sparse0.table_1 is 7 x 8, planned 1000 x 128"
    )


def test_a_module_elsewhere_is_both_missing_and_unknown() -> None:
    error = mismatch(plan_of(small_model()), nested(small_model()))
    assert error.missing == tuple(f"sparse0.table_{i}" for i in range(4))
    assert error.unknown == tuple(f"table_{i}" for i in range(4))


def test_a_whole_module_may_be_missing() -> None:
    module = nested(small_model(2), small_model(3))
    plan = plan_of(module)
    del plan.plan["sparse1"]
    assert mismatch(plan, module).missing == tuple(f"sparse1.table_{i}" for i in range(3))


def test_only_some_of_many_are_named() -> None:
    error = mismatch(ShardingPlan({}), small_model(25))
    assert len(error.missing) == 25
    assert "table_9 and 15 more" in str(error)
    assert "table_10" not in str(error)


def test_modules_without_a_sharder_are_left_alone() -> None:
    module = nested(small_model())
    plan = plan_of(module)
    module.plain = nn.EmbeddingBag(10, 4, device=META)
    check_module(plan, module, None, "")
    sharders = [make_sharder(kind, None, None) for kind in ("bag", "plain_bag")]
    assert mismatch(plan, module, sharders).missing == ("plain.weight",)


def test_a_plan_may_be_for_a_module_inside_one_with_a_sharder() -> None:
    module = MODULES["processed_bag"](Draw("inside"), small_tables())
    plan = plan_of(nested(module))
    assert list(plan.plan) == ["sparse0._embedding_bag_collection"]
    assert len(check_module(plan, nested(module), None, "")) == 4
