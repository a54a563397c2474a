"""A file's format is found, or the error lists the known ones."""

from __future__ import annotations

import os
import pickle
import random

import pytest

from fastplan.plans.checks import PlanFileError
from fastplan.plans.file import plan_text, read_plan, write_plan
from fastplan.plans.foreign import READABLE, WRITABLE, read_any, write_any
from tests.interpreter import python
from tests.plans.samples import assert_same_layout, mixed_plan


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plan"


def test_our_own_files_are_read_with_all_that_they_say(path):
    plan = mixed_plan()
    write_plan(plan, path)
    found = read_any(path)
    assert_same_layout(plan, found)
    assert found.basis.canonical == plan.basis.canonical


def test_writing_our_own_format_is_the_default(path):
    write_any(mixed_plan(), path)
    assert path.read_text() == plan_text(mixed_plan())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"{}",
        b"[1]",
        b'{"plan": {}}',
        b'{"format": "other"}',
        b'{"a": {"b": {"c": 1}}}',
        b"hello",
        b"\x00\x01",
        b"\x89PNG\r\n",
        "tables:\n  - name: ü\n".encode(),
    ],
    ids=range(11),
)
def test_an_unknown_format_is_told_with_the_known_ones(data, path):
    path.write_bytes(data)
    with pytest.raises(PlanFileError) as caught:
        read_any(path)
    for name in READABLE:
        assert name in str(caught.value)


def test_broken_json_is_called_so(path):
    path.write_text('{"format": "fastplan sharding plan", ')
    with pytest.raises(PlanFileError, match="is not JSON"):
        read_any(path)


@pytest.mark.parametrize("data", [b"{" * 3, b'{"a":' * 100_000, b'{"a": 1, "a": 2}', b'{"a": NaN}'])
def test_odd_json_is_refused(data, path):
    path.write_bytes(data)
    with pytest.raises(PlanFileError):
        read_any(path)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_is_refused_without_trust_and_not_run(protocol, path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(path) + ".run",)

    path.write_bytes(pickle.dumps(Trap(), protocol))
    with pytest.raises(PlanFileError, match="--trust-pickle") as caught:
        read_any(path)
    assert "--trust-pickle" in str(caught.value)
    assert os.listdir(path.parent) == ["plan"]


def test_an_archive_of_torch_is_taken_for_a_pickle(path):
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(PlanFileError, match="is a pickle"):
        read_any(path)


def test_a_trusted_pickle_needs_torchrec(path):
    path.write_bytes(pickle.dumps([1], 2))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from fastplan.plans.foreign import read_any\n"
        f"try: read_any({str(path)!r}, trust_pickle=True)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    told = python(code)
    assert told.startswith("PlanFileError")
    assert "which only TorchRec reads" in told
    assert "`fastplan doctor` shows what to install" in told


def test_formats_that_can_not_be_written_are_refused(path):
    for format in {*READABLE} - {*WRITABLE}:
        with pytest.raises(PlanFileError, match="only as fastplan or torcheasyrec or pickle"):
            write_any(mixed_plan(), path, format)


def test_a_missing_file_is_an_error_of_its_own(path):
    with pytest.raises(FileNotFoundError):
        read_any(path)


def test_random_bytes_are_refused(path):
    draw = random.Random(1)
    for _ in range(200):
        path.write_bytes(draw.choice([b"", b"{", b"module: ", b'{"plan": ']) + draw.randbytes(30))
        with pytest.raises(PlanFileError):
            read_any(path)


def test_a_plan_of_another_format_is_called_so_where_only_ours_is_read(path):
    write_any(mixed_plan(), path, "torcheasyrec")
    with pytest.raises(PlanFileError, match=r"is the `plan` of a TorchEasyRec.*`fastplan convert`"):
        read_plan(path)
    path.write_text("model: tiny\ntables: []\n")
    with pytest.raises(PlanFileError, match="is a spec file, not a plan"):
        read_plan(path)
    path.write_bytes(pickle.dumps(3))
    with pytest.raises(PlanFileError, match=r"is a ShardingPlan from torch\.save or pickle"):
        read_plan(path)
    path.write_text("[]")
    with pytest.raises(PlanFileError):
        read_plan(path)
