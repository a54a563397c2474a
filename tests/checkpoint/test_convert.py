"""Checkpoints that are converted to other plans without a job."""

import os
import resource
import signal
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torchrec.distributed.types import ParameterSharding

from fastplan.checkpoint import CheckpointError, convert, inspect, storage, writing
from fastplan.checkpoint.storage import Checkpoint, open_writer
from tests.checkpoint.samples import (
    KEY,
    ROWS,
    content,
    momentum,
    weights,
    whole_plan,
    write,
    write_plan,
)
from tests.torchrec.shardings import DIM, column_wise, row_wise, table_wise

DATA_PARALLEL = ParameterSharding("data_parallel", "dense", [0, 1], None)
K0, K1 = KEY.format(0), KEY.format(1)


def loaded(path, like):
    """What plain DCP reads, into tensors of these shapes."""
    dcp.load(like, checkpoint_id=path, no_dist=True)
    return like


def like_tensors(*lengths):
    """A state dict to load into: tables with momenta of these lengths."""
    keys = [KEY.format(i) for i in range(len(lengths))]
    model = {key: torch.zeros(ROWS, DIM) for key in keys} | {"over.weight": torch.zeros(2, 2)}
    states = {key: {f"t{i}.momentum1": torch.zeros(lengths[i])} for i, key in enumerate(keys)}
    return {"model": model, "optim": {"state": states}, "epoch": 0}


def shards(path):
    """Where each chunk of each tensor is."""
    entries = Checkpoint(path).entries
    return {key: {chunk.offsets for chunk in entry.chunks} for key, entry in entries.items()}


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "old")


def test_states_are_cut_as_torchrec_cuts_them(tmp_path, source):
    new = tmp_path / "new"
    convert(source, write_plan(tmp_path / "plan.json"), new)
    found = shards(new)
    assert found[f"model.{K0}"] == {(0, 0), (2, 0), (4, 0)}
    assert found[f"optim.state.{K0}.t0.momentum1"] == {(0,), (2,), (4,)}
    assert found[f"model.{K1}"] == {(0, 0), (0, DIM // 2)}
    # Two column shards have a vector each, one below the other.
    assert found[f"optim.state.{K1}.t1.momentum1"] == {(0,), (ROWS,)}
    like = like_tensors(ROWS, 2 * ROWS)
    loaded(new, like)
    assert torch.equal(like["model"][K0], weights(0))
    assert torch.equal(like["model"][K1], weights(1))
    assert torch.equal(like["model"]["over.weight"], torch.ones(2, 2))
    assert torch.equal(like["optim"]["state"][K0]["t0.momentum1"], momentum(0))
    assert torch.equal(like["optim"]["state"][K1]["t1.momentum1"], momentum(1).repeat(2))
    assert like["epoch"] == 7


def test_there_and_back_is_the_same(tmp_path, source):
    convert(source, write_plan(tmp_path / "plan.json"), tmp_path / "new")
    convert(tmp_path / "new", whole_plan(tmp_path / "whole.json"), tmp_path / "back")
    before, after = inspect(source), inspect(tmp_path / "back")
    assert {t.key: [(p.name, p.size) for p in t.parts] for t in before.tables} == {
        t.key: [(p.name, p.size) for p in t.parts] for t in after.tables
    }
    state = loaded(
        tmp_path / "back", {"optim": {"state": {K1: {"t1.momentum1": torch.zeros(ROWS)}}}}
    )
    assert torch.equal(state["optim"]["state"][K1]["t1.momentum1"], momentum(1))


def test_column_shards_that_differ_are_not_merged(tmp_path):
    cut = write_plan(tmp_path / "cw.json", {"t0": column_wise(ROWS, 0, 1)})
    convert(write(tmp_path / "a", content(1)), cut, tmp_path / "cut")
    # Row 2 of the second column shard becomes another one.
    entry = Checkpoint(tmp_path / "cut").entries[f"optim.state.{K0}.t0.momentum1"]
    chunk = next(c for c in entry.chunks if c.offsets == (ROWS,))
    with Checkpoint(tmp_path / "cut") as checkpoint:
        start = checkpoint._place(entry, chunk).start
    with open(tmp_path / "cut" / chunk.file, "r+b") as file:
        file.seek(start + 2 * 4)
        file.write(torch.tensor([8.0]).numpy().tobytes())
    plan = write_plan(tmp_path / "tw.json", {"t0": table_wise(ROWS, 0)})
    with pytest.raises(CheckpointError, match="differs in row 2"):
        convert(tmp_path / "cut", plan, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    convert(tmp_path / "cut", plan, tmp_path / "merged", merge="mean")
    state = loaded(
        tmp_path / "merged", {"optim": {"state": {K0: {"t0.momentum1": torch.zeros(ROWS)}}}}
    )
    expected = momentum()
    expected[2] = (2 + 8) / 2
    assert torch.equal(state["optim"]["state"][K0]["t0.momentum1"], expected)


def test_a_data_parallel_table_gets_the_states_of_a_torch_optimizer(tmp_path, source):
    plan = write_plan(tmp_path / "plan.json", {"t0": DATA_PARALLEL, "t1": table_wise(ROWS, 0)})
    with pytest.raises(CheckpointError, match=f"{K0}: its kernel is dense.*step"):
        convert(source, plan, tmp_path / "new")
    convert(source, plan, tmp_path / "new", step=5)
    state = {"optim": {"state": {K0: {"sum": torch.zeros(ROWS, 1), "step": torch.tensor(0.0)}}}}
    loaded(tmp_path / "new", state)
    own = state["optim"]["state"][K0]
    assert torch.equal(own["sum"].view(-1), momentum())
    assert own["step"] == 5


def test_every_table_must_be_in_both(tmp_path, source):
    plan = write_plan(
        tmp_path / "plan.json", {"t0": table_wise(ROWS, 0), "t2": table_wise(ROWS, 0)}
    )
    with pytest.raises(CheckpointError) as error:
        convert(source, plan, tmp_path / "new")
    assert error.value.problems == {
        K1: f"table {K1}: the plan does not have it",
        "tables.t2": "table tables.t2 of the plan: not in the checkpoint",
    }


def test_sizes_must_agree(tmp_path, source):
    plan = write_plan(
        tmp_path / "plan.json", {"t0": row_wise(ROWS + 1, 0), "t1": table_wise(ROWS, 0)}
    )
    with pytest.raises(CheckpointError, match=f"table {K0}: 6 x 8 in the checkpoint, .7, 8. in"):
        convert(source, plan, tmp_path / "new")


def test_an_interrupt_leaves_nothing(tmp_path, source):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, whole_plan(tmp_path / "p.json"), tmp_path / "new", progress=interrupt)
    assert sorted(os.listdir(tmp_path)) == ["old", "p.json"]


def test_a_failure_removes_the_parents_that_it_made_and_no_others(tmp_path, source):
    """Somebody else may have used one in the meantime."""
    plan = whole_plan(tmp_path / "p.json")

    def fail(done, total):
        raise RuntimeError("out of patience")

    def use_and_fail(done, total):
        (tmp_path / "a" / "theirs").touch()
        fail(done, total)

    (tmp_path / "mine").mkdir()
    for folder in ("a/b/new", "mine/new"):
        with pytest.raises(RuntimeError, match=r"^out of patience$"):
            convert(source, plan, tmp_path / folder, progress=fail)
    assert sorted(os.listdir(tmp_path)) == ["mine", "old", "p.json"]
    with pytest.raises(RuntimeError, match=r"^out of patience$"):
        convert(source, plan, tmp_path / "a/b/new", progress=use_and_fail)
    assert os.listdir(tmp_path / "a") == ["theirs"]


def test_parents_that_were_made_before_one_failed_are_removed(tmp_path, source):
    plan = whole_plan(tmp_path / "p.json")
    with pytest.raises(OSError, match="File name too long"):
        convert(source, plan, tmp_path / "a" / ("b" * 300) / "new")
    assert sorted(os.listdir(tmp_path)) == ["old", "p.json"]


_TERMINATED = """
import os, signal, sys
from fastplan.checkpoint import convert
print("started")
convert(*sys.argv[1:], progress=lambda done, total: os.kill(os.getpid(), signal.SIGTERM))
"""


def test_sigterm_leaves_nothing_and_ends_the_process(tmp_path, source):
    words = [source, whole_plan(tmp_path / "p.json"), tmp_path / "a" / "new"]
    ended = subprocess.run(
        [sys.executable, "-c", _TERMINATED, *map(str, words)], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "started\n"), ended.stderr
    assert sorted(os.listdir(tmp_path)) == ["old", "p.json"]


def test_a_handler_of_the_caller_gets_the_sigterm(tmp_path, source):
    came = []
    plain = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        convert(
            source,
            whole_plan(tmp_path / "p.json"),
            tmp_path / "new",
            progress=lambda *_: signal.raise_signal(signal.SIGTERM),
        )
    finally:
        signal.signal(signal.SIGTERM, plain)
    assert set(came) == {signal.SIGTERM}
    assert inspect(tmp_path / "new").tables


@pytest.fixture
def limited_files():
    """Lets files have some bytes only, which fails as a full disk does: in the middle of a file."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize("size", [100, 2_000, 5_000])
def test_a_full_disk_is_told_with_the_directory(tmp_path, source, limited_files, size):
    plan = whole_plan(tmp_path / "p.json")
    limited_files(size)
    told = f"can't write {tmp_path}/new.*: File too large; [0-9,]+ bytes are free there"
    with pytest.raises(CheckpointError, match=told):
        convert(source, plan, tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["old", "p.json"]


def test_metadata_that_does_not_fit_is_told_with_the_directory(tmp_path, limited_files):
    """It is written last, and without torch."""
    writer = open_writer(tmp_path)
    limited_files(1)
    with pytest.raises(CheckpointError, match=f"can't write {tmp_path}: File too large"):
        writing.finish(writer, [], [])


def test_an_interrupt_of_a_write_stays_one(tmp_path):
    """torch raises an error of its own when it can't end its file, which hides the interrupt."""
    with pytest.raises(KeyboardInterrupt), writing.writing_to(tmp_path):
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")


def test_an_error_that_names_its_file_stays_as_it_is(tmp_path):
    with pytest.raises(FileNotFoundError), writing.writing_to(tmp_path):
        (tmp_path / "no" / "file").read_bytes()


def test_shards_without_rows_are_written(tmp_path, source):
    """A table with fewer rows than ranks has such shards: the last ranks hold none."""
    plan = write_plan(
        tmp_path / "plan.json",
        {"t0": row_wise(ROWS, *range(4)), "t1": table_wise(ROWS, 0)},
    )
    convert(source, plan, tmp_path / "new")
    state = loaded(tmp_path / "new", like_tensors(ROWS, ROWS))
    assert torch.equal(state["model"][K0], weights())
    assert torch.equal(state["optim"]["state"][K0]["t0.momentum1"], momentum())
    convert(tmp_path / "new", whole_plan(tmp_path / "p.json"), tmp_path / "back")
    assert torch.equal(loaded(tmp_path / "back", like_tensors(ROWS, ROWS))["model"][K0], weights())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_tensors_without_numbers_are_copied(tmp_path, shape):
    state = content()
    state["model"]["none"] = torch.zeros(shape)
    convert(write(tmp_path / "old", state), whole_plan(tmp_path / "p.json"), tmp_path / "new")
    assert Checkpoint(tmp_path / "new").entries["model.none"].size == shape
    loaded(tmp_path / "new", {"model": {"none": torch.zeros(shape)}})


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(tmp_path):
    state = {"model": content()["model"], "ema": content()["model"]}
    plan = whole_plan(tmp_path / "p.json")
    told = r"no tables found under 'typo'; .* can be 'ema', 'model'$"
    with pytest.raises(CheckpointError, match=told):
        convert(write(tmp_path / "old", state), plan, tmp_path / "new", under="typo")
    convert(tmp_path / "old", plan, tmp_path / "new", under="ema")
    empty = write(tmp_path / "empty", {"epoch": 7})
    with pytest.raises(CheckpointError, match="no tables found in the checkpoint"):
        convert(empty, plan, tmp_path / "none", under="model")


def test_a_transposed_weight_is_copied(tmp_path):
    state = content()
    state["model"]["over.weight"] = torch.arange(4.0).view(2, 2).t()
    source = write(tmp_path / "old", state)
    convert(source, whole_plan(tmp_path / "p.json"), tmp_path / "new")
    found = loaded(tmp_path / "new", like_tensors(ROWS, ROWS))
    assert torch.equal(found["model"]["over.weight"], torch.tensor([[0.0, 2.0], [1.0, 3.0]]))


def test_an_expanded_weight_is_read_in_parts(tmp_path, monkeypatch):
    """It has a few numbers in its file, and gigabytes in memory if all rows are read at once."""
    monkeypatch.setattr(storage, "BUFFER", 64)
    state = {"weight": torch.arange(4.0).expand(1 << 20, 4)}
    with Checkpoint(write(tmp_path / "old", state)) as checkpoint:
        (entry,) = checkpoint.entries.values()
        (chunk,) = entry.chunks
        parts = [*checkpoint.rows(entry, chunk, 5, 15)]
    assert [(first, len(rows)) for first, rows in parts] == [(5, 4), (9, 4), (13, 2)]
    assert all(torch.equal(rows, state["weight"][: len(rows)]) for _, rows in parts)


def test_nothing_is_overwritten(tmp_path, source):
    with pytest.raises(CheckpointError, match="exists already"):
        convert(source, whole_plan(tmp_path / "p.json"), source)


def test_large_shards_become_several_chunks(tmp_path, source, monkeypatch):
    monkeypatch.setattr(writing, "CHUNK_BYTES", 2 * DIM * 4)
    monkeypatch.setattr(writing, "FILE_BYTES", 100)
    convert(source, whole_plan(tmp_path / "p.json"), tmp_path / "new")
    assert shards(tmp_path / "new")[f"model.{K0}"] == {(0, 0), (2, 0), (4, 0)}
    state = loaded(tmp_path / "new", {"model": {K0: torch.zeros(ROWS, DIM)}})
    assert torch.equal(state["model"][K0], weights())


def test_a_short_file_is_reported_before_anything_is_written(tmp_path, source):
    (file,) = source.glob("*.distcp")
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(CheckpointError, match=r"bytes and should have .* damaged"):
        convert(source, whole_plan(tmp_path / "p.json"), tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["old", "p.json"]


def test_a_checkpoint_of_fsspec_can_be_read(tmp_path, source):
    found = inspect(f"file://{source}")
    assert [table.key for table in found.tables] == [K0, K1]


def test_blocks_can_be_written_through_fsspec(tmp_path):
    url = f"file://{tmp_path}/new"
    (tmp_path / "new").mkdir()
    shape = (ROWS, DIM)
    block = writing.Block(("model", K0), shape, (0, 0), shape, torch.float32, weights)
    writer = open_writer(url)
    writer.set_up_storage_writer(True)
    writing.finish(writer, [block], writing.write_blocks(writer, [block], "0"))
    assert [table.key for table in inspect(url).tables] == [K0]
    state = loaded(tmp_path / "new", {"model": {K0: torch.zeros(shape)}})
    assert torch.equal(state["model"][K0], weights())


def test_an_unknown_way_to_merge_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="`merge` must be 'exact' or 'mean', not 'average'"):
        convert(tmp_path / "none", tmp_path / "none.json", tmp_path / "out", merge="average")
