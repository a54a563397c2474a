"""A plan file gives back the plan that was written, and nothing but a plan file is read."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fastplan import PlanFileError
from fastplan.cache.fingerprint import canonical_request, parse_search
from fastplan.model.plan import Layout, Plan
from fastplan.plans import file as file_module
from fastplan.plans.file import parse_plan, plan_text, read_plan, write_plan
from tests.interpreter import python
from tests.plans.samples import (
    NO_PLANS,
    SEEDS,
    assert_same_layout,
    damaged,
    mixed_plan,
    random_plan,
)

PLANS = [partial(random_plan, seed) for seed in SEEDS] + [
    partial(mixed_plan, seed) for seed in range(10)
]
NAMES = ["", " ", "t\n1", "\x1b[31mred", "<script>alert(1)</script>", 'a"b', "ü", "\ud800", "a.b"]


def bare(plan: Plan) -> Plan:
    return replace(plan, basis=None)


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_a_plan_comes_back_with_all_that_is_known(make):
    plan = make()
    text = plan_text(plan)
    found = parse_plan(text.encode(), "plan.json")
    assert_same_layout(plan, found)
    assert (found.name, found.fingerprint, found.notes) == ("model", plan.fingerprint, plan.notes)
    assert found.basis.canonical == plan.basis.canonical
    document = json.loads(found.basis.canonical)
    again = canonical_request(
        found.basis.request,
        parse_search(document),
        ranks=document["ranks"],
        context=document["context"],
    )
    assert again == plan.basis.canonical
    assert found.basis.cluster == plan.basis.cluster
    assert found.basis.record.pack() == plan.basis.record.pack()
    assert plan_text(found) == text


@pytest.mark.parametrize("make", PLANS[::3], ids=range(len(PLANS[::3])))
def test_a_bare_plan_comes_back_but_for_what_no_file_says(make):
    plan = bare(make())
    found = parse_plan(plan_text(plan).encode(), "plan.json")
    # Tables come by module, and copies have no shape.
    order = {(table.path, table.name): table for table in found.layout.tables}
    for table in plan.layout.tables:
        twin = order[table.path, table.name]
        if table.sharding_type != "data_parallel":
            assert twin.shards.tolist() == table.shards.tolist()
            assert twin.shape == table.shape
        else:
            assert twin.shape is None
            assert twin.shards.tolist() == [[0, 0, 0, 0, r] for r in range(len(table.shards))]
    assert found.basis is None
    assert found.ranks == plan.ranks or all(t.sharding_type != "row_wise" for t in order.values())


def test_the_file_has_a_line_per_table_and_per_column():
    text = plan_text(mixed_plan())
    lines = [line.strip() for line in text.splitlines()]
    assert sum(line.startswith('"t') and '"sharding_type"' in line for line in lines) == 14
    basis = json.loads(text)["basis"]
    for name in basis["request"]["tables"]:
        assert sum(line.startswith(f'"{name}": ') for line in lines) == 1
    assert all(len(json.dumps(menu)) < 4000 for menu in basis["request"]["menus"])
    assert list(json.loads(text))[-2:] == ["modules", "basis"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_survives(name):
    plan = mixed_plan(count=2)
    tables = plan.layout.tables
    odd = (tables[0]._replace(name=name), tables[1]._replace(path=name))
    changed = replace(bare(plan), layout=replace(plan.layout, tables=odd), notes={name: name})
    text = plan_text(changed)
    assert text.isascii()
    assert not set(text) & {"\x1b", "\x00"}
    found = parse_plan(text.encode(), "x")
    assert {(t.path, t.name) for t in found.layout.tables} == {(t.path, t.name) for t in odd}
    assert found.notes == {name: name}


def test_files_are_written_whole_and_read(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    write_plan(mixed_plan(1), path)
    assert_same_layout(mixed_plan(1), read_plan(path))
    before = path.read_bytes()

    def full(number: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_plan(mixed_plan(2), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_plan_without_a_name_is_called_like_its_file(tmp_path):
    write_plan(replace(mixed_plan(), notes={}), tmp_path / "tuesday.json")
    assert read_plan(tmp_path / "tuesday.json").name == "tuesday.json"


def test_an_empty_plan_is_a_plan():
    found = parse_plan(plan_text(Plan(name="x", layout=Layout(tables=()))).encode(), "x")
    assert (found.layout.tables, found.ranks, found.layout.device) == ((), 0, None)


@pytest.mark.parametrize(
    ("change", "place", "text"),
    [
        (lambda p: replace(p, fingerprint="f" * 40), "fingerprint", "must be that of the basis"),
        (lambda p: replace(p, notes={"a": 1}), "notes.a", "must be a string"),
        (
            lambda p: replace(p, layout=replace(p.layout, tables=p.layout.tables[:1] * 2)),
            "modules",
            "twice",
        ),
        (
            lambda p: replace(p, layout=replace(p.layout, device=None)),
            "device",
            "must be known, because",
        ),
        (
            lambda p: replace(p, layout=replace(p.layout, tables=p.layout.tables[1:])),
            "modules",
            "must have the 14 tables",
        ),
        (
            lambda p: replace(p, layout=replace(p.layout, tables=p.layout.tables[::-1])),
            None,
            "is where `basis` has table",
        ),
    ],
    ids=["fingerprint", "notes", "twice", "device", "fewer", "order"],
)
def test_a_plan_that_contradicts_itself_is_not_written(change, place, text, tmp_path):
    with pytest.raises(PlanFileError, match=text) as caught:
        write_plan(change(mixed_plan()), tmp_path / "plan.json")
    assert caught.value.path == str(tmp_path / "plan.json")
    assert place is None or caught.value.place == place
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("data", NO_PLANS, ids=range(len(NO_PLANS)))
def test_what_is_no_plan_is_refused(data):
    with pytest.raises(PlanFileError, match=r"^plan\.json: "):
        parse_plan(data, "plan.json")


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    write_plan(mixed_plan(), path)
    monkeypatch.setattr(file_module, "MOST_BYTES", path.stat().st_size)
    read_plan(path)
    with open(path, "ab") as stream:
        stream.truncate(2**30)
    with pytest.raises(PlanFileError, match="is larger than"):
        read_plan(path)


def test_a_missing_file_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_plan(tmp_path / "none")


def test_a_damaged_file_is_refused_or_is_a_plan():
    draw = random.Random(11)
    data = plan_text(mixed_plan(count=7)).encode()
    refused = 0
    for _ in range(1500):
        try:
            parse_plan(damaged(draw, data), "plan.json")
        except PlanFileError:
            refused += 1
    assert refused > 1400


def test_reading_and_writing_need_no_torch(tmp_path: Path):
    write_plan(mixed_plan(), tmp_path / "plan.json")
    code = (
        "import sys; from fastplan.plans.file import read_plan, write_plan;"
        "from fastplan.plans.foreign import read_any;"
        "from fastplan.planning.movement import movement;"
        f"plan = read_any({str(tmp_path / 'plan.json')!r}); movement(plan, plan);"
        f"write_plan(plan, {str(tmp_path / 'again.json')!r});"
        "print([m for m in ('torch', 'torchrec', 'numba', 'fsspec') if m in sys.modules])"
    )
    assert python(code) == "[]"
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()
