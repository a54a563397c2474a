"""Libraries are found where torch left them, and put where torch looks."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastplan.bundle import compiled


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "compile_cache", lambda: str(tmp_path))
    return tmp_path


def write(path, age=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(path.name.encode())
    then = time.time() - age
    os.utime(path, (then, then))


def test_a_kernel_is_put_into_the_folder(folder):
    compiled.place_kernel("ab/new.so", b"library")
    assert (folder / "ab" / "new.so").read_bytes() == b"library"
    assert os.listdir(folder / "ab") == ["new.so"]


def test_only_the_user_can_write_to_a_kernel_and_its_folders(folder):
    before = os.umask(0)
    try:
        compiled.place_kernel("ab/cd/new.so", b"library")
    finally:
        os.umask(before)
    for place, mode in (("ab", 0o755), ("ab/cd", 0o755), ("ab/cd/new.so", 0o644)):
        assert (folder / place).stat().st_mode & 0o777 == mode


def test_a_kernel_that_is_there_stays(folder):
    write(folder / "ab" / "old.so")
    before = (folder / "ab" / "old.so").stat().st_ino
    compiled.place_kernel("ab/old.so", b"another")
    assert (folder / "ab" / "old.so").read_bytes() == b"old.so"
    assert (folder / "ab" / "old.so").stat().st_ino == before


def test_a_kernel_that_cannot_be_written_leaves_nothing(folder, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        compiled.place_kernel("ab/new.so", b"library")
    assert os.listdir(folder / "ab") == []


def test_new_libraries_are_found_and_old_ones_are_not(folder):
    write(folder / "ab" / "new.so")
    write(folder / "ab" / "old.so", age=3600)
    write(folder / "ab" / "source.cpp")
    write(folder / "triton" / "0" / "XY" / "launcher.so")
    write(folder / ".hidden" / "a.so")
    found = compiled._libraries(folder, time.time() - 60)
    assert found == {
        "ab/new.so": b"new.so",
        "triton/0/XY/launcher.so": b"launcher.so",
    }


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not tell")
def test_libraries_in_use_are_found_however_old_they_are():
    loaded = Path(np.__file__).resolve().parent
    found = compiled._libraries(loaded, time.time() + 3600)
    assert any("_multiarray_umath" in name for name in found)


def test_a_folder_that_is_not_there_has_no_libraries(tmp_path):
    assert compiled._libraries(tmp_path / "missing", 0.0) == {}


def test_a_process_that_compiled_nothing_has_no_code(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert compiled.collect_compiled_code(0.0) is None
