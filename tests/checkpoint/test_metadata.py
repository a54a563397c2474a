"""The metadata of checkpoints is read as data, whatever it says."""

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex

from fastplan.checkpoint import metadata as metadata_module
from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import parse_metadata
from fastplan.checkpoint.storage import METADATA, Checkpoint
from tests.checkpoint.samples import KEY, ROWS, write
from tests.torchrec.shardings import DIM


def metadata_of(path: Path) -> Metadata:
    return dcp.FileSystemReader(path).read_metadata()


def parsed(metadata):
    return parse_metadata(pickle.dumps(metadata), "ckpt")


@pytest.fixture
def metadata(tmp_path):
    return metadata_of(write(tmp_path / "ckpt"))


def test_entries_are_those_of_dcp(metadata):
    found = parsed(metadata)
    assert found.keys() == metadata.state_dict_metadata.keys()
    weight = found[f"model.{KEY.format(0)}"]
    assert (weight.dtype, weight.size) == (torch.float32, (ROWS, DIM))
    assert weight.path == ("model", KEY.format(0))
    assert found["epoch"].dtype is None


def test_a_pickle_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    with pytest.raises(CheckpointError, match="names pathlib"):
        parsed(Evil())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["os system", "builtins eval", "torch load", "torch.hub load", "builtins getattr"]
)
def test_other_names_are_refused(name):
    data = f"c{name.replace(' ', chr(10))}\n.".encode()
    with pytest.raises(CheckpointError, match=name.replace(" ", r"\.")):
        parse_metadata(data, "ckpt")


def test_a_pickle_can_not_change_classes():
    """A BUILD opcode with a tuple sets attributes, also those of a class."""
    data = b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N(S'evil'\nI1\ndtb."
    with pytest.raises(CheckpointError):
        parse_metadata(data, "ckpt")
    assert not hasattr(Metadata, "evil")


def test_a_file_outside_of_the_checkpoint_is_refused(metadata):
    next(iter(metadata.storage_data.values())).relative_path = "../secret"
    with pytest.raises(CheckpointError, match="not in the checkpoint's directory"):
        parsed(metadata)


def test_a_chunk_without_a_file_is_refused(metadata):
    del metadata.storage_data[MetadataIndex(f"model.{KEY.format(0)}", (0, 0))]
    with pytest.raises(CheckpointError, match=r"t0.weight: the chunk at \(0, 0\) is in no file"):
        parsed(metadata)


def test_chunks_must_cover_their_tensor(metadata):
    metadata.state_dict_metadata[f"model.{KEY.format(0)}"].size = torch.Size([ROWS + 1, DIM])
    with pytest.raises(CheckpointError, match="don't cover"):
        parsed(metadata)


@pytest.mark.parametrize("data", [b"", b"\x80", b"N.", b"]q\x00.", pickle.dumps({"a": 1})])
def test_other_data_is_refused(data):
    with pytest.raises(CheckpointError, match=r"^ckpt: "):
        parse_metadata(data, "ckpt")


def test_a_few_bytes_do_not_ask_for_all_memory(monkeypatch):
    made = []
    monkeypatch.setattr(pickle, "bytearray", made.append, raising=False)
    with pytest.raises(CheckpointError, match="the metadata can't be read"):
        parse_metadata(b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".", "ckpt")
    assert not made


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    folder = write(tmp_path / "ck")
    data = (folder / METADATA).read_bytes()
    for file in [*folder.iterdir()]:
        file.unlink()
        os.mkfifo(file)
    with pytest.raises(CheckpointError, match="metadata is not a regular file"):
        Checkpoint(folder)
    (folder / METADATA).unlink()
    (folder / METADATA).write_bytes(data)
    with (
        Checkpoint(folder) as opened,
        pytest.raises(CheckpointError, match="is not a regular file"),
    ):
        opened.check_files([*opened.entries.values()])


def test_a_chunk_that_is_damaged_behind_its_header_is_told(tmp_path):
    folder = write(tmp_path / "ck", {"weight": torch.arange(4000.0).view(40, 100).t()})
    (file,) = folder.glob("*.distcp")
    data = bytearray(file.read_bytes())
    number = data.index(torch.tensor(3000.0).numpy().tobytes())
    data[data.rindex(b"PK\x03\x04", 0, number)] ^= 1
    file.write_bytes(data)
    with Checkpoint(folder) as opened:
        (entry,) = opened.entries.values()
        with pytest.raises(CheckpointError, match=r"weight at .* can't be read"):
            list(opened.rows(entry, entry.chunks[0], 0, 100))


def test_a_chunk_that_is_no_tensor_is_told(tmp_path):
    folder = write(tmp_path / "ck", {"weight": torch.ones(40, 100)})
    (file,) = folder.glob("*.distcp")
    torch.save({"weight": torch.ones(40, 100)}, file)
    with Checkpoint(folder) as opened:
        (entry,) = opened.entries.values()
        chunk = entry.chunks[0]._replace(length=file.stat().st_size)
        with pytest.raises(CheckpointError, match="is no tensor"):
            list(opened.rows(entry, chunk, 0, 40))


def nested() -> object:
    """Lists of lists whose `repr` has 10^60 characters, in a few hundred bytes of a pickle."""
    made: object = [1]
    for _ in range(60):
        made = [made] * 10
    return made


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (nested(), "[a list, a list, a list, a list, ...]"),
        ((1, -2), "[1, -2]"),
        ((1 << 100_000,), "[a int]"),
        ("wide", "a str"),
        ((True, None, 0.5), "[True, None, 0.5]"),
    ],
)
def test_a_wrong_size_is_shown_in_short(value, shown):
    with pytest.raises(CheckpointError, match="which is not a list of sizes") as error:
        metadata_module._ints(value, "the size of x")
    assert str(error.value).startswith(f"the size of x is {shown},")
