"""Plans that other projects keep as JSON are read and written as they are there."""

from __future__ import annotations

import json

import pytest

from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import plan_text
from fastplan.plans.foreign import read_any, write_any
from tests.plans.samples import mixed_plan

# As a checkpoint of TorchEasyRec has it.
EASY = {
    "model.embedding_group.emb_impls.__BASE__.ebc": {
        "user_id_emb": {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]},
        "item_id_emb": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [1]},
    },
    "model.embedding_group.emb_impls.__BASE__.mc_ebc._embedding_module": {
        "small": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1]}
    },
}
SERIALIZED = {
    "plan": {
        "ebc": {
            "rows": {
                "sharding_type": "row_wise",
                "compute_kernel": "fused",
                "ranks": [0, 5],
                "shards": [
                    {"shard_offsets": [0, 0], "shard_sizes": [5, 8], "placement": "rank:0/cuda:0"},
                    {"shard_offsets": [5, 0], "shard_sizes": [3, 8], "placement": "rank:5/cuda:1"},
                ],
            },
            "copied": {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0]},
        }
    }
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plan"


def test_a_checkpoints_plan_is_read_and_written_as_it_was(path):
    path.write_text(json.dumps(EASY))
    plan = read_any(path)
    assert plan.notes == {"source_format": "torcheasyrec"}
    assert (plan.ranks, plan.layout.device) == (2, None)
    assert all(table.shape is None for table in plan.layout.tables)
    assert [table.shards[:, 4].tolist() for table in plan.layout.tables] == [[0, 1], [1], [0, 1]]
    write_any(plan, path, "torcheasyrec")
    assert path.read_text() == json.dumps(EASY)


def test_our_plans_are_written_as_torcheasyrec_does(path):
    plan = mixed_plan()
    write_any(plan, path, "torcheasyrec")
    found = json.loads(path.read_text())
    for table in plan.layout.tables:
        assert found[table.path][table.name] == {
            "sharding_type": table.sharding_type,
            "compute_kernel": table.kernel,
            "ranks": table.shards[:, 4].tolist(),
        }


def test_a_plan_of_unknown_shapes_can_be_a_plan_file(path):
    path.write_text(json.dumps(EASY))
    plan = read_any(path)
    write_any(plan, path)
    again = read_any(path)
    assert plan_text(again) == plan_text(plan)
    assert again.notes == plan.notes


def test_a_serialized_plan_has_its_shards(path):
    path.write_text(json.dumps(SERIALIZED))
    plan = read_any(path)
    assert plan.notes == {"source_format": "torchrec-json"}
    assert (plan.layout.device, plan.layout.ranks_per_host) == ("cuda", 4)
    rows, copied = plan.layout.tables
    assert rows.shards.tolist() == [[0, 0, 5, 8, 0], [5, 0, 3, 8, 5]]
    assert (rows.shape, rows.settings, copied.shape) == ((8, 8), {}, None)


def test_a_shard_without_a_placement_lies_by_its_tables_ranks(path):
    content = json.loads(json.dumps(SERIALIZED).replace('"rank:5/cuda:1"', '"None"'))
    path.write_text(json.dumps(content))
    assert read_any(path).layout.tables[0].shards[:, 4].tolist() == [0, 5]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda t: t.pop("ranks"), ".ranks"),
        (lambda t: t.update(ranks=[0, -1]), ".ranks[1]"),
        (lambda t: t.update(ranks="all"), ".ranks"),
        (lambda t: t.update(sharding_type=3), ".sharding_type"),
        (lambda t: t.update(shards=[{"shard_offsets": [0, 0]}]), ".shards[0].size"),
        (lambda t: t.update(shards=7), ".shards"),
    ],
)
def test_the_error_says_where(change, place, path):
    content = json.loads(json.dumps(SERIALIZED))
    change(content["plan"]["ebc"]["rows"])
    path.write_text(json.dumps(content))
    with pytest.raises(PlanFileError) as caught:
        read_any(path)
    assert caught.value.place.endswith("ebc.rows" + place)


@pytest.mark.parametrize("content", [[], {"ebc": 1}, {"ebc": {"t": 1}}, {"plan": {}}, {"plan": 3}])
def test_other_json_is_refused(content, path):
    path.write_text(json.dumps(content))
    with pytest.raises(PlanFileError, match="none of the known formats"):
        read_any(path)
