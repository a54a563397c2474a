"""Plans that TorchRec's users have already, as pickles, text or JSON, are read as they are."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from torchrec.distributed.types import EmbeddingModuleShardingPlan, ShardingPlan

from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import plan_text, write_plan
from fastplan.plans.foreign import read_any, write_any
from fastplan.torchrec.plan_files import describe_plan, load_plan, save_plan
from tests.parity.compare import quiet
from tests.parity.small import small
from tests.parity.subject import TorchRecPlanner

from .plans import SEEDS, assert_equal_plans, every_setting, made, one_table

SOME = SEEDS[1::7]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan"


def legacy(plan: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(plan, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def archive(plan: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(plan, stream)
    return stream.getvalue()


WRITERS = {"pickle": pickle.dumps, "archive": archive, "legacy": legacy}


def without_settings(plan: ShardingPlan) -> ShardingPlan:
    """The plan as far as text has it."""
    tables = ("sharding_type", "compute_kernel", "ranks", "sharding_spec")
    return ShardingPlan(
        {
            module: EmbeddingModuleShardingPlan(
                {
                    name: type(sharding)(**{field: getattr(sharding, field) for field in tables})
                    for name, sharding in module_plan.items()
                }
            )
            for module, module_plan in plan.plan.items()
        }
    )


def same_text(one: Any, other: Any) -> None:
    """Equal but for their notes."""
    texts = [json.loads(plan_text(plan)) for plan in (one, other)]
    for text in texts:
        text.pop("notes")
    assert texts[0] == texts[1]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("seed", SOME[:5])
def test_a_trusted_pickle_is_read(seed: int, writer: str, path: Path) -> None:
    plan, _ = made(seed)
    path.write_bytes(WRITERS[writer](plan))
    with pytest.raises(PlanFileError, match="trust_pickle"):
        read_any(path)
    found = read_any(path, trust_pickle=True)
    assert found.notes == {"source_format": "pickle"}
    same_text(found, describe_plan(plan))
    write_plan(found, path.with_name("again"))
    assert_equal_plans(plan, load_plan(path.with_name("again")))


def test_settings_survive(path: Path) -> None:
    plan = one_table(**every_setting())
    path.write_bytes(pickle.dumps(plan))
    write_any(read_any(path, trust_pickle=True), path)
    assert_equal_plans(plan, load_plan(path))


def test_only_the_user_can_write_to_a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(one_table()))
    before = os.umask(0)
    try:
        write_any(read_any(path, trust_pickle=True), path.with_name("new"), format="pickle")
    finally:
        os.umask(before)
    assert path.with_name("new").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pickle.dumps({"a": 1}), "contains a dict, not a ShardingPlan"),
        (archive(torch.zeros(2)), "contains a Tensor"),
        (b"\x80\x04nonsense", "can't be unpickled"),
        (b"PK\x03\x04nonsense", "can't be unpickled"),
        (pickle.dumps(one_table())[:-9], "can't be unpickled"),
    ],
    ids=["dict", "tensor", "nonsense", "archive", "cut off"],
)
def test_a_pickle_of_something_else_is_refused(data: bytes, text: str, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(PlanFileError, match=text):
        read_any(path, trust_pickle=True)


@pytest.mark.parametrize("seed", SOME)
def test_printed_plans_are_read(seed: int, path: Path) -> None:
    plan, _ = made(seed)
    path.write_text(str(plan))
    found = read_any(path)
    assert found.notes == {"source_format": "torchrec-text"}
    same_text(found, describe_plan(without_settings(plan)))
    write_any(found, path)
    assert_equal_plans(without_settings(plan), load_plan(path))


@pytest.mark.parametrize("seed", SOME)
def test_serialized_plans_are_read(seed: int, path: Path) -> None:
    plan, _ = made(seed)
    path.write_text(json.dumps(plan._serialize()))
    found = read_any(path)
    assert found.notes == {"source_format": "torchrec-json"}
    same_text(found, describe_plan(without_settings(plan)))


@pytest.mark.parametrize("seed", SOME[:6])
def test_torcheasyrecs_plans_are_written_as_it_does(seed: int, path: Path) -> None:
    plan, _ = made(seed)
    expected = {
        module: {
            name: {
                "sharding_type": sharding.sharding_type,
                "compute_kernel": sharding.compute_kernel,
                "ranks": sharding.ranks,
            }
            for name, sharding in module_plan.items()
        }
        for module, module_plan in plan.plan.items()
    }
    write_any(describe_plan(plan), path, "torcheasyrec")
    assert path.read_text() == json.dumps(expected)


def test_torchrecs_own_plans_are_described_like_ours() -> None:
    built = small()
    with quiet():
        plan = TorchRecPlanner(**built.planner_kwargs).plan(built.module, built.sharders)
    found = describe_plan(plan, "name", notes={"a": "b"})
    assert (found.name, found.notes, found.basis) == ("name", {"a": "b"}, None)
    assert {(table.path, table.name) for table in found.layout.tables} == {
        (module, name) for module, tables in plan.plan.items() for name in tables
    }


@pytest.mark.parametrize("seed", SOME)
def test_a_saved_file_says_what_is_described(seed: int, path: Path) -> None:
    plan, _ = made(seed)
    save_plan(plan, path)
    assert plan_text(read_any(path)) == path.read_text()
    same_text(read_any(path), describe_plan(plan))
    assert os.listdir(path.parent) == ["plan"]
