"""A table of a plan file is read only if it is one, and the error says where and what it is."""

import copy
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from torchrec.distributed.types import ParameterSharding

from fastplan.plans import entries
from fastplan.torchrec.plan_files import PlanFileError, load_plan, save_plan
from fastplan.torchrec.plan_json import PlacementRule, Placements
from tests.parity.small import small_topology
from tests.trees import Node, nodes

from .plans import every_setting, one_table, spec

# Without these the file means something else, but something.
OPTIONAL = (
    "row_blocks",
    "column_blocks",
    "cache_params",
    "enforce_hbm",
    "stochastic_rounding",
    "bounds_check_mode",
    "output_dtype",
    "key_value_params",
)
RETYPED = [None, True, -1, 1.5, 10**30, "text", "0-99999999999999999999", [], [[]], {}, {"a": 1}]


def small_file() -> Any:
    """The content of a file with blocks, listed shards, a table without any, and settings."""
    placements = Placements(PlacementRule("cuda", 2))
    plan = one_table(ranks=[0, 1, 2, 3], **every_setting())
    tables = plan.plan["sparse"]
    tables["grid"] = ParameterSharding(
        "grid_shard", "fused", [0, 1, 2, 3], placements.blocks([5, 4], [2, 2], [0, 1, 2, 3])
    )
    tables["odd"] = ParameterSharding(
        "table_wise", "fused", [1], spec(([0, 0], [4, 4], "rank:1/cpu"))
    )
    return content(plan)


def content(plan: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        save_plan(plan, Path(folder) / "plan", notes={"by": "hand"}, fingerprint="abc")
        return json.loads((Path(folder) / "plan").read_text())


SMALL = small_file()
NODES = list(nodes(SMALL))


def at(value: Any, path: Node) -> Any:
    for key in path:
        value = value[key]
    return value


def attempt(value: Any, file: Path) -> PlanFileError | None:
    """The error of reading the content, if any; every other exception is a failure."""
    file.write_text(json.dumps(value))
    try:
        load_plan(file, topology=small_topology(ranks=4))
    except PlanFileError as error:
        return error
    return None


def is_optional(path: Node) -> bool:
    """Whether a file without this node is one, too."""
    inside = path[3:] if path[0] == "modules" else path
    if path[0] == "notes":
        return len(path) == 2
    if len(path) in (2, 3):  # a module, a table
        return True
    if inside[0] == "ranks":  # without blocks any number of ranks will do
        return len(inside) == 2 and path[2] != "grid"
    if inside[0] not in OPTIONAL:
        return False
    # Fields that have defaults, and items of lists whose length is free.
    return "stats" not in inside[:-1] or "values" in inside[:-1]


def test_the_file_is_fine_as_it_is(tmp_path: Path) -> None:
    assert attempt(SMALL, tmp_path / "plan") is None
    assert len(NODES) > 100


@pytest.mark.parametrize("path", NODES, ids=lambda path: ".".join(map(str, path)))
def test_a_file_without_a_node_is_refused_unless_it_may_be_left_out(
    path: Node, tmp_path: Path
) -> None:
    value = copy.deepcopy(SMALL)
    del at(value, path[:-1])[path[-1]]
    error = attempt(value, tmp_path / "plan")
    if error is None:
        assert is_optional(path)
    else:
        assert error.place


@pytest.mark.parametrize("path", NODES, ids=lambda path: ".".join(map(str, path)))
def test_a_node_of_another_type_is_refused_or_means_the_same_kind_of_thing(
    path: Node, tmp_path: Path
) -> None:
    original = at(SMALL, path)
    for other in RETYPED:
        value = copy.deepcopy(SMALL)
        at(value, path[:-1])[path[-1]] = other
        error = attempt(value, tmp_path / "plan")
        if error is not None:
            assert error.place
        elif other is not None and type(other) is not type(original):
            # A number for a number, or an empty list of shards or hosts.
            assert {type(other), type(original)} <= {int, float} or original is None


@pytest.mark.parametrize(
    ("field", "value", "place", "text"),
    [
        ("ranks", [0, 1, 2.5, 3], ".ranks[2]", "must be a rank or a range such as `0-7`, not 2.5"),
        ("ranks", ["3-0"], ".ranks[0]", "rising"),
        ("ranks", [0, 1, 2], ".ranks", "must be one per block: 3 for 4"),
        ("ranks", None, ".ranks", "must have a rank for every block"),
        ("ranks", ["0-7"], ".ranks[0]", "must be below the topology's 4 ranks, not 7"),
        ("row_blocks", [5, 5], ".row_blocks", "must add up to 9, not 10"),
        ("row_blocks", ["2x5"], ".row_blocks[0]", "must be a size or `count x size`"),
        ("row_blocks", ["999999999 x 0", 9], ".ranks", "one per block"),
        ("row_blocks", [-1, 10], ".row_blocks[0]", "must be a size"),
        ("column_blocks", [4], ".ranks", "must be one per block: 4 for 2"),
        ("shape", [9], ".shape", "two numbers"),
        ("shape", [9, -4], ".shape[1]", "whole number"),
        ("shards", None, "", "must have either `shape` or `shards`"),
        ("rank", [0], ".rank", "did you mean `ranks`?"),
        ("enforce_hbm", 1, ".enforce_hbm", "must be true or false, not 1"),
        ("output_dtype", "FP1", ".output_dtype", "must be one of FP32, FP16"),
    ],
)
def test_the_error_says_where_and_what(
    field: str, value: Any, place: str, text: str, tmp_path: Path
) -> None:
    changed = copy.deepcopy(SMALL)
    changed["modules"]["sparse"]["grid"][field] = value
    error = attempt(changed, tmp_path / "plan")
    assert error is not None
    assert error.place == "modules.sparse.grid" + place
    assert text in error.problem
    assert str(tmp_path / "plan") in str(error)


@pytest.mark.parametrize(
    ("shards", "place", "text"),
    [
        ([], "", "Empty shard list"),
        ([{"offset": [0, 0], "size": [4, 4]}], "[0].placement", "is missing"),
        ([{"offset": [0], "size": [4, 4], "placement": None}], "[0]", "as many offsets as sizes"),
        (
            [{"offset": [0, 0], "size": [4, 4], "placement": "rank:x/cpu"}],
            "[0].placement",
            "rank:0",
        ),
        (
            [{"offset": [0, 0], "size": [4, 4], "placement": "rank:0/ship"}],
            "[0].placement",
            "rank:0",
        ),
        ([{"offset": [0, 0], "size": [4, 4], "placement": None}] * 2, "", "overlap"),
    ],
)
def test_listed_shards_are_checked(shards: Any, place: str, text: str, tmp_path: Path) -> None:
    changed = copy.deepcopy(SMALL)
    changed["modules"]["sparse"]["odd"]["shards"] = shards
    error = attempt(changed, tmp_path / "plan")
    assert error is not None
    assert error.place == "modules.sparse.odd.shards" + place
    assert text in error.problem


@pytest.mark.parametrize(
    ("field", "value"),
    [("device", "ship"), ("device", "cuda:1"), ("device", None), ("ranks_per_host", 0)],
)
def test_the_placement_rule_is_checked(field: str, value: Any, tmp_path: Path) -> None:
    error = attempt({**SMALL, field: value}, tmp_path / "plan")
    assert error is not None
    assert error.place == field


def test_a_small_file_cannot_ask_for_endless_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = copy.deepcopy(SMALL)
    table = {"sharding_type": "a", "compute_kernel": "b", "ranks": ["0-3"], "shards": None}
    changed["modules"] = {"m": {f"t{i}": table for i in range(10)}}
    assert attempt(changed, tmp_path / "plan") is None
    monkeypatch.setattr(entries, "MOST_SHARDS", 39)
    error = attempt(changed, tmp_path / "plan")
    assert error is not None
    assert error.place == "modules.m.t9.ranks[0]"


def test_a_damaged_file_is_refused_or_is_a_plan(tmp_path: Path) -> None:
    draw = random.Random(7)
    data = json.dumps(SMALL).encode()
    refused = 0
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            start = draw.randrange(len(data))
            other = draw.randrange(len(data))
            damaged[start : start + draw.randint(0, 9)] = data[other : other + draw.randint(0, 9)]
        (tmp_path / "plan").write_bytes(damaged)
        try:
            load_plan(tmp_path / "plan")
        except PlanFileError:
            refused += 1
    assert refused > 1000
