"""A plan saved with its planner can be rated and verified without TorchRec."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

from torchrec.distributed.planner.proposers import GreedyProposer, GridSearchProposer
from torchrec.distributed.types import ShardingPlan

from fastplan.cache.fingerprint import (
    canonical_request,
    fingerprint,
    parse_canonical,
    parse_search,
)
from fastplan.engine.layout import layout_of, narrowed
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, verify_plan
from fastplan.model.plan import Basis, Plan
from fastplan.plans.file import read_plan, write_plan
from fastplan.torchrec.plan_files import (
    PlanFileError,
    describe_plan,
    load_plan,
    read_plan_file,
    save_plan,
)
from fastplan.torchrec.state import basis_of_planner
from tests.parity.compare import quiet
from tests.parity.instances import make_instance
from tests.parity.models import bag_collection
from tests.parity.small import small, small_constraints, small_tables, small_topology
from tests.parity.subject import FastPlanner, TorchRecPlanner

from .plans import SEEDS, assert_equal_plans

RESIZED = 58  # a random instance whose proposer has resized caches


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def planned(built: Any, **arguments: Any) -> tuple[Any, ShardingPlan]:
    planner = FastPlanner(**{**built.planner_kwargs, **arguments})
    with quiet():
        return planner, planner.plan(built.module, built.sharders)


def same_tables(expected: Plan, actual: Plan) -> None:
    """Equal but for the order of modules, the shape of copies, and settings."""
    tables = {(table.path, table.name): table for table in expected.layout.tables}
    assert len(actual.layout.tables) == len(tables)
    for table in actual.layout.tables:
        twin = tables[table.path, table.name]
        assert (table.sharding_type, table.kernel) == (twin.sharding_type, twin.kernel)
        if twin.shape is None:
            assert table.sharding_type == "data_parallel"
            assert np.array_equal(table.shards[:, 4], twin.shards[:, 4])
        else:
            assert table.shape == twin.shape
            assert np.array_equal(table.shards, twin.shards)


@pytest.mark.parametrize("seed", sorted({*SEEDS[::3], RESIZED}))
def test_the_layout_is_the_plans_and_the_request_comes_back(seed: int, file: Path) -> None:
    built = make_instance(seed).build()
    planner, plan = planned(built)
    basis = basis_of_planner(planner)
    save_plan(plan, file, planner=planner)
    assert_equal_plans(plan, load_plan(file))
    found = read_plan(file)
    assert not isinstance(basis, str), basis
    topology = built.planner_kwargs["topology"]
    layout = layout_of(basis.request, basis.cluster, basis.record, device=topology.compute_device)
    same_tables(describe_plan(plan), Plan(name="", layout=layout))
    same_tables(describe_plan(plan), found)
    assert found.fingerprint == fingerprint(basis.canonical)
    assert found.basis.record.pack() == basis.record.pack()
    assert found.basis.cluster == basis.cluster
    request, document = parse_canonical(basis.canonical)
    again = canonical_request(
        request, parse_search(document), ranks=document["ranks"], context=document["context"]
    )
    assert again == basis.canonical


def test_resized_caches_are_kept(file: Path) -> None:
    planner, plan = planned(make_instance(RESIZED).build())
    save_plan(plan, file, planner=planner)
    assert read_plan(file).basis is not None
    assert any(
        factor is not None for factor in json.loads(file.read_text())["basis"]["load_factors"]
    )


def small_cases() -> list[Any]:
    kinds = ["table_wise", "column_wise", "row_wise", "table_row_wise", "grid_shard"]
    return [
        pytest.param({"sharding_types": [kind]}, ranks, host, id=f"{kind} {ranks} of {host}")
        for kind in [*kinds, "table_column_wise", "data_parallel"]
        for ranks, host in ((4, 2), (8, 4), (6, 6))
    ]


@pytest.mark.parametrize(("rules", "ranks", "host"), small_cases())
def test_a_written_plan_is_the_one_that_torchrec_would_have(
    rules: dict[str, Any], ranks: int, host: int, file: Path
) -> None:
    built = small(
        constraints=small_constraints(**rules, min_partition=16),
        topology=small_topology(ranks=ranks, local_world_size=host),
    )
    planner, plan = planned(built)
    basis = basis_of_planner(planner)
    assert basis is not None
    layout = layout_of(basis.request, basis.cluster, basis.record)
    write_plan(Plan(name="small", layout=layout, basis=basis), file)
    loaded = load_plan(file, built.module, topology=built.planner_kwargs["topology"])
    assert_equal_plans(plan, loaded)
    save_plan(plan, file, planner=planner)
    assert_equal_plans(plan, load_plan(file, built.module))


def test_a_saved_plan_can_be_verified_and_rated_again(file: Path) -> None:
    built = small(count=5)
    planner, plan = planned(built)
    save_plan(plan, file, planner=planner)
    basis = read_plan(file).basis
    assert basis is not None
    space = estimate(narrowed(basis.request, basis.record))
    numbers = np.arange(len(basis.record.table), dtype=np.int32)
    problem = Problem(space, basis.cluster)
    assert verify_plan(problem, numbers, basis.record.ranks, basis.record.rating) == ""
    assert verify_plan(problem, numbers, basis.record.ranks, basis.record.rating * 2) != ""
    assert basis.record.rating == planner.last_run.rating


def test_the_fingerprint_is_the_caches(tmp_path: Path, file: Path) -> None:
    # A proposer with a threshold changes while it searches.
    def proposers() -> list[Any]:
        return [GreedyProposer(threshold=5), GridSearchProposer()]

    cached, _ = planned(small(), proposer=proposers(), cache=tmp_path / "cache")
    planner, plan = planned(small(), proposer=proposers())
    save_plan(plan, file, planner=planner)
    assert read_plan(file).fingerprint == cached.last_run.cache.fingerprint
    again, same = planned(small(), proposer=proposers(), cache=tmp_path / "cache")
    assert again.last_run.cache.status == "hit"
    save_plan(same, file, planner=again)
    assert read_plan(file).fingerprint == cached.last_run.cache.fingerprint


def test_torchrec_reads_what_the_file_says_beyond_the_plan(file: Path) -> None:
    planner, plan = planned(small())
    save_plan(plan, file, planner=planner, notes={"by": "hand"})
    found = read_plan_file(file)
    assert isinstance(found.basis, Basis)
    assert found.fingerprint == fingerprint(found.basis.canonical)
    assert found.notes == {"by": "hand"}
    assert_equal_plans(plan, found.plan)
    described = describe_plan(plan, planner=planner)
    assert described.basis is not None
    assert described.basis.canonical == found.basis.canonical
    assert described.fingerprint == found.fingerprint


def test_tables_of_two_modules_in_turn_keep_their_order(file: Path) -> None:
    from torch import nn

    module = nn.Module()
    for i in range(3):
        tables = [t for j, t in enumerate(small_tables(9)) if j % 3 == i]
        setattr(module, f"sparse{i}", bag_collection(tables))
    built = small(module=module)
    planner, plan = planned(built)
    basis = basis_of_planner(planner)
    assert basis is not None
    # Modules in turn, as proposers that sort tables have them.
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]
    record = basis.record
    ranks = np.split(record.ranks, np.cumsum(_placed(basis))[:-1])
    turned = Basis(
        canonical=basis.canonical,
        request=basis.request,
        cluster=basis.cluster,
        record=type(record)(
            table=record.table[order],
            sharding_type=record.sharding_type[order],
            kernel=record.kernel[order],
            load_factor=record.load_factor[order],
            ranks=np.concatenate([ranks[i] for i in order]),
            rating=record.rating,
        ),
    )
    layout = layout_of(turned.request, turned.cluster, turned.record)
    write_plan(Plan(name="x", layout=layout, basis=turned), file)
    assert json.loads(file.read_text())["basis"]["order"] == order
    found = read_plan(file)
    assert found.basis is not None
    assert found.basis.record.pack() == turned.record.pack()
    assert [t.name for t in found.layout.tables] == [t.name for t in layout.tables]
    for path, tables in load_plan(file, module).plan.items():
        assert dict(tables) == dict(plan.plan[path])


def _placed(basis: Basis) -> list[int]:
    """Recorded ranks by table."""
    layout = layout_of(basis.request, basis.cluster, basis.record)
    uniform = ("data_parallel", "row_wise")
    return [0 if t.sharding_type in uniform else len(t.shards) for t in layout.tables]


def test_another_plan_than_the_planners_is_refused(file: Path) -> None:
    planner, _ = planned(small(constraints=small_constraints(sharding_types=["table_wise"])))
    _, other = planned(small(constraints=small_constraints(sharding_types=["row_wise"])))
    with pytest.raises(PlanFileError, match="must be the last one that `planner` made") as caught:
        save_plan(other, file, planner=planner)
    assert caught.value.place.startswith("modules")
    _, fewer = planned(small(count=2))
    with pytest.raises(PlanFileError, match="must be the last one that `planner` made"):
        save_plan(fewer, file, planner=planner)
    assert not file.exists()


def test_another_fingerprint_than_the_planners_is_refused(file: Path) -> None:
    planner, plan = planned(small())
    with pytest.raises(PlanFileError, match="must be that of the basis") as caught:
        save_plan(plan, file, planner=planner, fingerprint="abc")
    assert caught.value.place == "fingerprint"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"callbacks": [lambda options: options]}, "callbacks have changed the plan"),
        ({"performance_model": None}, ""),
    ],
    ids=["callbacks", "usual"],
)
def test_what_has_no_basis_says_why(arguments: Any, reason: str, file: Path) -> None:
    planner, plan = planned(small(), **arguments)
    save_plan(plan, file, planner=planner)
    found = read_plan(file)
    assert found.notes.get("no_basis", "") == reason
    assert (found.basis is None) == bool(reason)
    assert_equal_plans(plan, load_plan(file))


def test_planners_that_have_not_searched_have_no_basis(file: Path) -> None:
    planner, plan = planned(small())
    for other in (
        FastPlanner(**small().planner_kwargs),
        TorchRecPlanner(**small().planner_kwargs),
        pickle.loads(pickle.dumps(planner)),
        copy.deepcopy(planner),
    ):
        save_plan(plan, file, planner=other)
        assert read_plan(file).notes["no_basis"]
