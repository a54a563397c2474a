"""Checkpoints that follow plans, on real ranks."""

import json

import pytest

from tests.torchrec.processes import run_ranks

KEYS = [f"tables.embedding_bags.t{i}.weight" for i in range(4)]
LAYOUTS = "dp_dense tw_fused cw_fused rw_fused rw_dense grid_fused"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checks")
    worker = "tests.torchrec.checkpoint_checks_worker"
    ranks = run_ranks(worker, [[rank, folder] for rank in range(2)], LOCAL_WORLD_SIZE="2")
    assert ranks[0] == ranks[1]
    return ranks[0]


def test_a_job_trains_on_under_another_plan(found):
    own = found["trains on"]
    assert own["same"]
    assert own["scale"]
    assert own["moved"] == KEYS[:3]
    assert own["text"][0].startswith("3 tables loaded from ")
    assert own["text"][1] == (
        f"  ~ {KEYS[0]}: table_wise fused in 1 on rank 0 > row_wise fused in 2 on ranks 0-1 "
        "(weights, sum)"
    )


def test_a_checkpoint_is_not_overwritten(found):
    assert "a checkpoint is here already" in found["trains on"]["again"]


def test_torchrec_reads_what_was_saved(found):
    assert found["torchrec reads"]


def test_an_optimizer_without_states_gets_them(found):
    own = found["fresh adam"]
    assert own["before"] == 0
    assert own["states"] == ["exp_avg", "exp_avg_sq", "step"]
    assert own["step"] == 3
    assert own["close"]


def test_a_dense_table_needs_its_optimizer(found):
    assert found["fresh adam"]["no optimizer"].startswith(
        f"table {KEYS[0]}: the checkpoint has its "
    )
    assert "optimizer=" in found["fresh adam"]["no optimizer"]


def test_weights_outside_tables_have_all_their_states_or_say_so(found):
    own = found["other weights"]
    assert own["old states"].startswith(
        "scale: its state step is not in the checkpoint, which has no state of it; "
    )
    assert own["no states"] == ["scale"]
    assert own["other"].startswith("scale: the checkpoint has its state ")
    assert own["loaded"] == [[], ["exp_avg", "exp_avg_sq", "step"]]
    assert own["same"]


def test_states_of_an_optimizer_that_cannot_tell_are_those_of_the_checkpoint(found):
    assert found["other weights"]["lists"] == ""


def test_arguments_that_lose_something_are_refused(found):
    own = found["arguments"]
    assert own["momentum"].startswith(f"table {KEYS[0]}: its state momentum_buffer is not in the ")
    assert own["no optimizer"].startswith(f"table {KEYS[0]}: its kernel is dense, and no optimizer")
    assert own["wide"].startswith("wide: its numbers share memory")
    assert own["text"] == f"`tables` must be keys of tables, such as ['{KEYS[0]}'], not a text"


def test_tables_may_be_an_iterator(found):
    assert found["arguments"]["once"] == KEYS[:1]


def test_weights_are_saved_and_loaded_alone(found):
    assert found["arguments"]["weights"] == ""


def test_a_checkpoint_of_before_the_first_step_is_loaded(found):
    assert found["arguments"]["first"] == KEYS[:2]


def test_one_of_two_parts_is_loaded(found):
    own = found["nested"]
    assert "the checkpoint has it 2 times" in own["which"]
    assert own["same"]
    assert own["moved"] == []


def test_plain_checkpoints_are_read(found):
    states = found["plain"]["states"]
    assert states == {KEYS[0]: ["sum"], KEYS[1]: ["sum"], KEYS[2]: ["sum", "step"]}


def test_a_missing_step_can_be_given(found):
    assert found["plain"]["no step"].startswith(f"table {KEYS[0]}: its step counter is not in")
    assert found["plain"]["step"] == 2


def test_column_shards_that_differ_are_merged_only_if_asked(found):
    own = found["plain"]
    assert own["merge"].startswith(
        f"table {KEYS[1]}: its state sum has a number per row and column"
    )
    assert own["averaged"] == [KEYS[1]]
    assert own["mean"]


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("not a table", "`tables` has t9, which is no table of the job"),
        ("other optimizer", f"table {KEYS[0]}: the checkpoint has its state momentum1, which"),
        ("other state", f"table {KEYS[0]}: its state sum is rowwise torch.float32 in the"),
        ("other table", f"table {KEYS[3]}: not in the checkpoint; the nearest key there is "),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(found, case, text):
    assert found["plain"][case].startswith(text)


def test_weights_can_be_loaded_alone(found):
    assert found["plain"]["weights alone"]


def test_damage_is_found_before_anything_is_written(found):
    own = found["damaged"]
    assert "bytes and should have" in own["short"]
    assert "can't be read" in own["missing"]
    assert "no checkpoint here" in own["nothing"]


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adagrad"])
def test_no_pair_of_shardings_loses_a_bit(tmp_path, optimizer):
    task = {"kind": "bags", "optimizer": optimizer, "saved_by": 2}
    tasks = json.dumps([{**task, "do": "save"}, {**task, "do": "load"}])
    arguments = [[rank, 2, tmp_path, tmp_path / "store", tasks] for rank in range(2)]
    environment = {"LOCAL_WORLD_SIZE": "2", "CHECKPOINT_LAYOUTS": LAYOUTS}
    ranks = run_ranks("tests.torchrec.checkpoint_worker", arguments, **environment)
    (tables,) = ranks[0].values()
    assert len(tables) == len(LAYOUTS.split()) ** 2
    for name in tables:
        verdicts = [verdict for rank in ranks for run in rank.values() for verdict in run[name][2:]]
        merges = optimizer == "rowwise_adagrad" and _merges(*name.split("--"))
        if merges:
            assert all("number per row and column shard" in each for each in verdicts), verdicts
        else:
            assert set(verdicts) == {"same"}, name


def _merges(before, after):
    """Whether a shard gets columns of several; on one host a grid has all columns."""
    return before == "cw_fused" != after
