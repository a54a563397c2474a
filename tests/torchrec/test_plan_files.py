"""A plan file gives back the plan that was saved, and is easy to read and to compare."""

import copy
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    ObjectPoolShardingPlan,
    ObjectPoolShardingType,
    ParameterSharding,
    ShardingPlan,
)

from fastplan.plans import file as file_module
from fastplan.torchrec.plan_files import (
    PlanFileError,
    PlanMismatch,
    load_plan,
    read_plan_file,
    save_plan,
)
from fastplan.torchrec.plan_json import PlacementRule, Placements
from tests.parity.small import small_model, small_topology
from tests.plans.samples import NO_PLANS

from .plans import SEEDS, assert_equal_plans, every_setting, made, one_table, spec


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def row_wise(tables: int, ranks: int) -> ShardingPlan:
    placements = Placements(PlacementRule("cuda", 8))
    own = list(range(ranks))
    return ShardingPlan(
        {
            "sparse": EmbeddingModuleShardingPlan(
                {
                    f"t{i}": ParameterSharding(
                        "row_wise",
                        "fused",
                        own,
                        placements.blocks([977] * (ranks - 1) + [529], [64], own),
                    )
                    for i in range(tables)
                }
            )
        }
    )


def with_placement(value: Any) -> ShardingPlan:
    plan = one_table(sharding_spec=spec(([0, 0], [4, 4], None)))
    plan.plan["sparse"]["t"].sharding_spec.shards[0].placement = value
    return plan


def values_only(plan: ShardingPlan) -> bytes:
    """The plan's pickle, whatever objects it shares."""
    stream = io.BytesIO()
    pickler = pickle.Pickler(stream)
    pickler.fast = True
    pickler.dump(plan)
    return stream.getvalue()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_planned_plan_comes_back_equal(seed: int, file: Path) -> None:
    plan, built = made(seed)
    save_plan(plan, file)
    assert_equal_plans(plan, load_plan(file, topology=built.planner_kwargs["topology"]))


@pytest.mark.parametrize("seed", [0, 9, 10, 33])
def test_a_loaded_plan_pickles_as_the_original(seed: int, file: Path) -> None:
    plan, _ = made(seed)
    save_plan(plan, file)
    loaded = load_plan(file)
    assert values_only(loaded) == values_only(plan)
    assert_equal_plans(plan, pickle.loads(pickle.dumps(loaded)))


def test_the_file_reads_as_documented(file: Path) -> None:
    plan = row_wise(1, 16)
    plan.plan["sparse"]["odd"] = ParameterSharding(
        "table_wise",
        "fused",
        [3],
        spec(([0, 0], [10, 4], "rank:3/cpu")),
        enforce_hbm=True,
    )
    plan.plan["sparse"]["copied"] = ParameterSharding("data_parallel", "dense", [0, 1])
    save_plan(plan, file, fingerprint="abc", notes={"by": "hand"})
    assert file.read_text() == (
        """\
{
  "format": "fastplan sharding plan",
  "version": 1,
  "fingerprint": "abc",
  "notes": {"by": "hand"},
  "device": "cuda",
  "ranks_per_host": 8,
  "modules": {
    "sparse": {
      "t0": {"sharding_type": "row_wise", "compute_kernel": "fused", "shape": [15184, 64], \
"row_blocks": ["15 x 977", 529], "ranks": ["0-15"]},
      "odd": {
        "sharding_type": "table_wise",
        "compute_kernel": "fused",
        "ranks": [3],
        "shards": [
          {"offset": [0, 0], "size": [10, 4], "placement": "rank:3/cpu"}
        ],
        "enforce_hbm": true
      },
      "copied": {"sharding_type": "data_parallel", "compute_kernel": "dense", \
"ranks": [0, 1], "shards": null}
    }
  }
}
"""
    )
    assert_equal_plans(plan, load_plan(file))


def test_header_is_read_back(file: Path) -> None:
    save_plan(row_wise(1, 16), file, fingerprint="abc", notes={"a": "1", "b": "ü"})
    found = read_plan_file(file)
    assert (found.fingerprint, found.notes) == ("abc", {"a": "1", "b": "ü"})
    assert found.rule == PlacementRule("cuda", 8)


def test_equal_plans_give_equal_files(tmp_path: Path) -> None:
    plan = one_table(**every_setting())
    save_plan(plan, tmp_path / "one")
    save_plan(copy.deepcopy(plan), tmp_path / "two")
    save_plan(load_plan(tmp_path / "one"), tmp_path / "three")
    texts = [(tmp_path / name).read_bytes() for name in ("one", "two", "three")]
    assert texts[0] == texts[1] == texts[2]


def test_a_table_elsewhere_is_another_line(tmp_path: Path) -> None:
    plan = row_wise(5, 16)
    save_plan(plan, tmp_path / "one")
    placements = Placements(PlacementRule("cuda", 8))
    plan.plan["sparse"]["t3"].ranks = [7]
    plan.plan["sparse"]["t3"].sharding_spec = placements.blocks([15184], [64], [7])
    save_plan(plan, tmp_path / "two")
    one, two = ((tmp_path / name).read_text().splitlines() for name in ("one", "two"))
    assert [i for i, line in enumerate(one) if line != two[i]] == [12]


def test_file_hardly_grows_with_ranks(file: Path) -> None:
    plan = row_wise(10, 1024)
    save_plan(plan, file)
    assert file.stat().st_size < 2500
    assert_equal_plans(plan, load_plan(file))


def test_loaded_shards_share_no_lists(file: Path) -> None:
    save_plan(row_wise(2, 16), file)
    one, two = (table.sharding_spec.shards[3] for table in load_plan(file).plan["sparse"].values())
    assert one.placement == two.placement
    assert one.shard_sizes is not two.shard_sizes
    assert one.shard_offsets is not two.shard_offsets


@pytest.mark.parametrize(
    "plan",
    [
        ShardingPlan({}),
        ShardingPlan({"": EmbeddingModuleShardingPlan()}),
        one_table(ranks=None),
        one_table(sharding_type="table_wise"),
        one_table(sharding_type="column_wise", ranks=[5, 3, 3, 4, 5, 6, 0, 1]),
        one_table(sharding_spec=spec(([0, 0], [4, 4], None))),
        one_table(sharding_spec=spec(([0, 0], [4, 4], "trainer0/cuda:1"))),
        one_table(sharding_spec=spec(([0, 0], [4, 4], "cpu"))),
        one_table(sharding_spec=spec(([0], [4], "rank:0/cpu"))),
        one_table(sharding_spec=spec(([2, 0], [4, 4], "rank:0/cpu"))),
        one_table(sharding_spec=spec(([0, 0], [4, 4], "rank:1/cpu"))),
        one_table(ranks=[0, 1], sharding_spec=spec(([0, 0], [4, 4], "rank:0/cpu"))),
        one_table(ranks=None, sharding_spec=spec(([0, 0], [4, 4], "rank:0/cpu"))),
    ],
    ids=range(13),
)
def test_an_unusual_plan_comes_back_equal(plan: ShardingPlan, file: Path) -> None:
    save_plan(plan, file)
    assert_equal_plans(plan, load_plan(file))


def test_one_odd_placement_leaves_other_tables_short(file: Path) -> None:
    plan = row_wise(3, 64)
    plan.plan["sparse"]["odd"] = ParameterSharding(
        "table_wise", "fused", [9], spec(([0, 0], [4, 4], "rank:9/cuda:5"))
    )
    save_plan(plan, file)
    assert file.read_text().count("offset") == 1
    assert_equal_plans(plan, load_plan(file))


def test_a_plain_dict_of_tables_is_written_like_a_module_plan(file: Path) -> None:
    plan = one_table()
    save_plan(ShardingPlan({"sparse": dict(plan.plan["sparse"])}), file)
    assert_equal_plans(plan, load_plan(file))


@pytest.mark.parametrize(
    ("plan", "place"),
    [
        (
            ShardingPlan({"pool": ObjectPoolShardingPlan(ObjectPoolShardingType.ROW_WISE)}),
            "modules.pool",
        ),
        (
            one_table(sharding_spec=ChunkShardingSpec(0, ["rank:0/cpu"])),
            "modules.sparse.t.sharding_spec",
        ),
        (with_placement("rank:0/cpu"), "modules.sparse.t.shards[0].placement"),
        (
            one_table(sharding_spec=spec(([0, 0], [True, 4], "rank:0/cpu"))),
            "modules.sparse.t.shards[0].size[0]",
        ),
        (one_table(ranks=[0, -1]), "modules.sparse.t.ranks[1]"),
        (one_table(compute_kernel=None), "modules.sparse.t.compute_kernel"),
        (ShardingPlan({"a.b": {"t": 1}}), 'modules["a.b"].t'),
    ],
    ids=["pool", "chunks", "placement", "size", "rank", "kernel", "table"],
)
def test_what_a_file_cannot_hold_is_named(plan: ShardingPlan, place: str, file: Path) -> None:
    with pytest.raises(PlanFileError) as caught:
        save_plan(plan, file)
    assert (caught.value.path, caught.value.place) == (str(file), place)
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [({"fingerprint": 1}, "fingerprint"), ({"notes": {"a": 1}}, "notes.a")],
)
def test_headers_are_texts(arguments: Any, place: str, file: Path) -> None:
    with pytest.raises(PlanFileError, match="must be a string") as caught:
        save_plan(one_table(), file, **arguments)
    assert caught.value.place == place


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_plan(one_table(), file)
    before = file.read_bytes()

    def full(number: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_plan(row_wise(2, 16), file)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == [file.name]


def test_saving_through_a_link_keeps_the_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    save_plan(one_table(), link)
    assert link.is_symlink()
    assert_equal_plans(one_table(), load_plan(file))


@pytest.mark.skipif(os.name != "posix", reason="file modes are a matter of POSIX")
def test_a_file_gets_the_usual_mode(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    save_plan(one_table(), file)
    assert file.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_load_plan_checks_the_module(file: Path) -> None:
    save_plan(one_table(), file)
    with pytest.raises(PlanMismatch, match=r"plan\.json does not match the module"):
        load_plan(file, small_model())


@pytest.mark.parametrize(
    ("topology", "place", "text"),
    [
        (small_topology(ranks=8, local_world_size=8), "modules.sparse.t0.ranks[0]", "8 ranks"),
        (small_topology(ranks=16, local_world_size=4), "modules.sparse.t0.ranks", "cuda:0"),
        (small_topology(ranks=16, local_world_size=8), None, ""),
    ],
    ids=["fewer ranks", "smaller hosts", "same"],
)
def test_ranks_must_be_the_topologys(topology: Any, place: Any, text: str, file: Path) -> None:
    save_plan(row_wise(1, 16), file)
    if place is None:
        load_plan(file, topology=topology)
        return
    with pytest.raises(PlanFileError, match=text) as caught:
        load_plan(file, topology=topology)
    assert caught.value.place == place


def test_listed_shards_must_be_on_the_topologys_ranks(file: Path) -> None:
    save_plan(one_table(sharding_spec=spec(([0, 0], [4, 4], "rank:4/cpu"))), file)
    load_plan(file)
    with pytest.raises(PlanFileError, match="4 ranks") as caught:
        load_plan(file, topology=small_topology(ranks=4))
    assert caught.value.place == "modules.sparse.t.shards[0].placement"


def test_other_versions_are_refused(file: Path) -> None:
    save_plan(one_table(), file)
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(PlanFileError, match="must be 1, the only one that can be read, not 2"):
        load_plan(file)


@pytest.mark.parametrize("data", NO_PLANS, ids=range(len(NO_PLANS)))
def test_what_is_no_plan_is_refused(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    with pytest.raises(PlanFileError, match=r"plan\.json"):
        load_plan(file)


def test_a_table_that_is_there_twice_is_refused(file: Path) -> None:
    save_plan(row_wise(2, 4), file)
    file.write_text(file.read_text().replace('"t1"', '"t0"'))
    with pytest.raises(PlanFileError, match="t0: occurs twice"):
        load_plan(file)


def test_a_huge_file_is_refused_without_reading_it_all(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_plan(row_wise(2, 4), file)
    monkeypatch.setattr(file_module, "MOST_BYTES", file.stat().st_size)
    load_plan(file)
    with open(file, "ab") as stream:
        stream.truncate(2**30)
    with pytest.raises(PlanFileError, match="is larger than"):
        load_plan(file)


def test_a_missing_file_is_an_error_of_its_own(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_plan(file)


@pytest.mark.parametrize("ranks", [[0, 0, 0, 0], [0, 1, 2, 99]])
def test_row_wise_ranks_that_torchrec_cannot_run_are_refused(ranks: list[int], file: Path) -> None:
    save_plan(row_wise(1, 4), file)
    content = json.loads(file.read_text())
    content["modules"]["sparse"]["t0"]["ranks"] = ranks
    file.write_text(json.dumps(content))
    with pytest.raises(PlanFileError) as caught:
        load_plan(file, topology=small_topology(ranks=4))
    assert caught.value.place.startswith("modules.sparse.t0.ranks")
