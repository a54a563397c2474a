"""The comparison itself: it finds a single changed bit and says where."""

import copy
from typing import Any

import pytest

from .compare import assert_same, error_record, first_difference, outcome
from .small import cramped, small
from .subject import TorchRecPlanner


@pytest.fixture
def record() -> dict[str, Any]:
    return outcome(TorchRecPlanner, small(count=2))[0]


def set_at(record: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    """A copy of the record with one entry replaced; an integer in the path is a position."""
    changed = copy.deepcopy(record)
    node: Any = changed
    for step in path[:-1]:
        node = list(node.values())[step] if isinstance(step, int) else node[step]
    node[path[-1]] = value
    return changed


def test_two_builds_of_one_instance_have_equal_records(record: dict[str, Any]) -> None:
    assert_same(record, outcome(TorchRecPlanner, small(count=2))[0])


@pytest.mark.parametrize(
    "path",
    [
        ["num_plans"],
        ["rating"],
        ["plan", "module ''", "table table_1", "ranks"],
        ["plan", "module ''", "table table_1", "compute_kernel"],
        ["best_plan", 1, "shards", "shard 0", "rank"],
        ["search_space", 17, "shards", "shard 0", "perf", "bwd_comms"],
        ["search_space", 3, "shards", "shard 0", "storage", "ddr"],
        ["search_space", 9, "input_lengths"],
        ["reserved"],
    ],
    ids=lambda path: str(path[-1]),
)
def test_changed_entry_is_found_and_named(record: dict[str, Any], path: list[Any]) -> None:
    difference = first_difference(record, set_at(record, path, "changed"))
    assert difference is not None
    assert f"/ {path[-1]}: expected" in difference
    assert "got 'changed'" in difference


def test_an_integer_is_not_an_equal_float(record: dict[str, Any]) -> None:
    changed = set_at(record, ["num_plans"], float(record["num_plans"]))
    assert "num_plans" in str(first_difference(record, changed))


def test_tables_in_another_order_differ(record: dict[str, Any]) -> None:
    changed = copy.deepcopy(record)
    changed["plan"]["module ''"]["tables"].reverse()
    assert "tables" in str(first_difference(record, changed))


def test_missing_option_is_reported(record: dict[str, Any]) -> None:
    changed = copy.deepcopy(record)
    changed["search_space"].popitem()
    assert "search_space: expected entries" in str(first_difference(record, changed))


def test_error_texts_differ_in_anything_but_addresses() -> None:
    first = error_record(ValueError("<Option object at 0x7f00aa> needs 3 bytes"))
    assert first == error_record(ValueError("<Option object at 0x7f11bb> needs 3 bytes"))
    assert first != error_record(ValueError("<Option object at 0x7f00aa> needs 4 bytes"))
    assert first != error_record(KeyError("<Option object at 0x7f00aa> needs 3 bytes"))


def test_failed_run_keeps_its_error_and_its_search_space() -> None:
    record, _ = outcome(TorchRecPlanner, small(count=2, **cramped()))
    assert record["error"]["kind"] == "PlannerErrorType.INSUFFICIENT_STORAGE"
    assert record["plan"] is None
    assert record["search_space"]
