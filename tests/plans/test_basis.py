"""A file whose tables and basis tell two plans is refused, and the table is named."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastplan.cache.fingerprint import canonical_json, fingerprint
from fastplan.model.plan import NO_LOAD_FACTOR
from fastplan.model.vocabulary import KERNEL_INDEX
from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import parse_plan, plan_text
from tests.plans.samples import mixed_plan
from tests.trees import Node, nodes

PLAN = mixed_plan(count=7)
CONTENT = json.loads(plan_text(PLAN))
RETYPED = [None, True, -1, 0, 1.5, 10**30, "0x1p+99999", [[]], {}]
# Without these the file tells less, or tables in another order.
FREE = (("basis",), ("basis", "order"), ("notes", "model"), ("ranks_per_host",))


# One option of a menu is like another.
NODES = [path for path in nodes(CONTENT) if not ("menus" in path[:3] and path[4:5] > (1,))]


def at(value: Any, path: Node) -> Any:
    for key in path:
        value = value[key]
    return value


def attempt(content: Any, *, sign: bool = False) -> PlanFileError | None:
    """The error of reading the content, if any; with a fingerprint that fits, if signed."""
    if sign and isinstance(content.get("basis"), dict) and "request" in content["basis"]:
        request = content["basis"]["request"]
        content["fingerprint"] = fingerprint(canonical_json(request))
    try:
        parse_plan(json.dumps(content).encode(), "plan.json")
    except PlanFileError as error:
        return error
    return None


def place_of(name: str) -> str:
    path = next(path for path, tables in CONTENT["modules"].items() if name in tables)
    return f'modules["{path}"].{name}' if "." in path else f"modules.{path}.{name}"


def of_type(kind: str) -> tuple[str, str]:
    """Module and name of a table of this type."""
    return next(
        (path, name)
        for path, tables in CONTENT["modules"].items()
        for name, table in tables.items()
        if table["sharding_type"] == kind
    )


def test_the_content_is_fine_as_it_is():
    assert attempt(copy.deepcopy(CONTENT)) is None
    assert attempt(copy.deepcopy(CONTENT), sign=True) is None
    assert len(NODES) > 200


def test_a_file_without_a_node_is_refused_unless_it_may_be_left_out():
    for path in NODES:
        content = copy.deepcopy(CONTENT)
        del at(content, path[:-1])[path[-1]]
        error = attempt(content, sign="request" in path)
        if error is None:
            # A request may have other options and another context.
            assert path in FREE or {"context", "menus", "proposers"} & {*path}, path
        else:
            assert error.place, path


def test_a_node_of_another_type_is_refused_or_is_another_request():
    for path in NODES:
        original = at(CONTENT, path)
        for other in RETYPED:
            content = copy.deepcopy(CONTENT)
            at(content, path[:-1])[path[-1]] = other
            error = attempt(content, sign="request" in path)
            if error is not None:
                assert error.place, path
            elif type(other) is not type(original):
                assert path in FREE or "request" in path, (path, other)


def test_a_request_that_was_changed_is_refused_by_its_fingerprint():
    for path in NODES:
        if path[:2] == ("basis", "request"):
            content = copy.deepcopy(CONTENT)
            at(content, path[:-1])[path[-1]] = "other"
            error = attempt(content)
            assert error is not None
            assert error.place in ("fingerprint", "basis.request")


@pytest.mark.parametrize(
    ("change", "place", "text"),
    [
        (lambda c: c.update(fingerprint=None), "fingerprint", "must be that of `basis.request`"),
        (lambda c: c["basis"].update(rating="1.5"), "basis.rating", "finite hexadecimal float"),
        (lambda c: c["basis"].update(rating="nan"), "basis.rating", "finite hexadecimal float"),
        (lambda c: c["basis"].update(rating="-0x1.8p+0"), "basis.rating", "finite hexadecimal"),
        (lambda c: c["basis"].update(plan=1), "basis.plan", "is unknown"),
        (lambda c: c["basis"].update(certificate=7), "basis.certificate", "must be base64"),
        (lambda c: c["basis"].update(certificate="?"), "basis.certificate", "must be base64"),
        (
            lambda c: c["basis"].update(capacities=[[7, 1, 1, 1]]),
            "basis.capacities",
            "must be the capacities of 8 ranks, not 7",
        ),
        (
            lambda c: c["basis"].update(capacities=[[10**12, 1, 1, 1]]),
            "basis.capacities[0][0]",
            "ranks",
        ),
        (lambda c: c["basis"].update(order=[0] * 7), "basis.order", "each once"),
        (lambda c: c["basis"].update(order=[*range(1, 7), False]), "basis.order", "each once"),
        (
            lambda c: c["basis"].update(load_factors=[None] * 6),
            "basis.load_factors",
            "one value per table",
        ),
        (
            lambda c: c["basis"].update(load_factors=[None] * 6 + [1.5]),
            "basis.load_factors[6]",
            "must be a number from 0 to 1",
        ),
    ],
)
def test_the_error_says_where_and_what(change, place, text):
    content = copy.deepcopy(CONTENT)
    change(content)
    error = attempt(content)
    assert error is not None
    assert error.place == place
    assert text in error.problem


@pytest.mark.parametrize(
    ("kind", "change", "field", "text"),
    [
        ("table_wise", {"compute_kernel": "dense"}, None, "does not allow (table_wise, dense)"),
        ("table_wise", {"compute_kernel": "own"}, ".compute_kernel", "must be one of dense"),
        ("table_wise", {"sharding_type": "own"}, ".sharding_type", "must be one of data_parallel"),
        ("table_wise", {"shape": [7, 4]}, ".shape", "as `basis` says"),
        ("table_wise", {"ranks": [8]}, ".ranks[0]", "where the module's row-wise tables are"),
        ("row_wise", {"ranks": [*range(7, -1, -1)]}, ".ranks", "must be 0-7, as `basis` says"),
        ("data_parallel", {"ranks": ["0-6"]}, ".ranks", "must be 0-7, as `basis` says"),
        ("data_parallel", {"ranks": None}, ".ranks", "must be 0-7, as `basis` says"),
        (
            "table_wise",
            {"shape": ..., "ranks": [0], "shards": None},
            "",
            "has shards that don't match its sharding type",
        ),
        (
            "data_parallel",
            {"shards": [{"offset": [0, 0], "size": [4, 4], "placement": "rank:0/cuda:0"}]},
            "",
            "has shards that don't match its sharding type",
        ),
    ],
)
def test_a_table_that_differs_from_the_basis_is_named(kind, change, field, text):
    content = copy.deepcopy(CONTENT)
    path, name = of_type(kind)
    table = content["modules"][path][name]
    for key, value in change.items():
        if value is ...:
            del table[key]
        else:
            table[key] = value
    error = attempt(content)
    assert error is not None
    assert error.place == ("basis.request" if field is None else place_of(name) + field)
    assert text in error.problem
    assert name in str(error)


def test_a_table_that_is_cut_elsewhere_is_named():
    content = copy.deepcopy(CONTENT)
    path, name = of_type("row_wise")
    table = content["modules"][path][name]
    rows = table["shape"][0]
    table["row_blocks"] = [rows - 7, "7 x 1"]
    error = attempt(content)
    assert error is not None
    assert error.place == place_of(name)
    assert "split at other rows" in error.problem


def test_blocks_may_be_written_in_other_runs():
    content = copy.deepcopy(CONTENT)
    path, name = of_type("row_wise")
    table = content["modules"][path][name]
    blocks = []
    for item in table["row_blocks"]:
        count, size = map(int, item.split(" x ")) if isinstance(item, str) else (1, item)
        blocks += [size] * count
    table["row_blocks"] = blocks
    table["ranks"] = ["0-2", 3, "4-7"]
    assert attempt(content) is None


def test_missing_and_unknown_tables_are_named():
    content = copy.deepcopy(CONTENT)
    path, name = of_type("table_wise")
    table = content["modules"][path].pop(name)
    order = content["basis"].pop("order", None)
    assert order is not None
    error = attempt(content)
    assert error is not None
    assert (error.place, error.problem) == (place_of(name), "is missing, `basis.request` has it")
    content["modules"]["other"] = {"x": table}
    error = attempt(content)
    assert error is not None
    assert (error.place, error.problem) == ("modules.other.x", "is not a table of `basis.request`")


def test_load_factors_come_back():
    record = PLAN.basis.record
    factors = np.full(len(record.table), np.nan)
    factors[:3] = 0.1 + 0.2, NO_LOAD_FACTOR, 0.0
    cached = record.kernel == KERNEL_INDEX["fused_uvm_caching"]
    factors[(record.kernel == KERNEL_INDEX["fused"]) & ~cached] = np.nan
    changed = replace(PLAN, basis=replace(PLAN.basis, record=replace(record, load_factor=factors)))
    text = plan_text(changed)
    found = parse_plan(text.encode(), "x").basis.record
    assert found.pack() == changed.basis.record.pack()
    assert plan_text(parse_plan(text.encode(), "x")) == text


def test_a_request_without_hosts_is_refused():
    content = copy.deepcopy(CONTENT)
    del content["basis"]["request"]["context"]["local_world_size"]
    error = attempt(content, sign=True)
    assert error is not None
    assert error.place == "basis.request.context.local_world_size"


def test_a_certificate_comes_back():
    proven = replace(PLAN, basis=replace(PLAN.basis, certificate=b"proof"))
    text = plan_text(proven)
    assert '"certificate": "cHJvb2Y="' in text
    assert parse_plan(text.encode(), "x").basis.certificate == b"proof"
    assert "certificate" not in plan_text(PLAN)
    assert parse_plan(plan_text(PLAN).encode(), "x").basis.certificate == b""


def test_odd_shards_may_have_a_basis():
    path, name = of_type("table_wise")
    content = copy.deepcopy(CONTENT)
    table = content["modules"][path][name]
    shape = table.pop("shape")
    rank = table["ranks"][0]
    table["shards"] = [{"offset": [0, 0], "size": shape, "placement": f"rank:{rank}/cpu"}]
    text = json.dumps(content)
    found = parse_plan(text.encode(), "x")
    again = json.loads(plan_text(found))
    assert again["modules"][path][name] == table
