"""Compiled functions are cached on disk, and damaged or missing files are not errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from tests.costs import samples
made = samples.critical_path.compiled()
print(made.from_disk, *([made.not_kept] if made.not_kept else []))
"""


def compile_in_a_new_process(folder, **variables) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**environment, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_second_process_does_not_compile_and_a_damaged_file_is_no_error(tmp_path):
    assert compile_in_a_new_process(tmp_path) == "False"
    # The digest must not depend on the seed of string hashes.
    assert compile_in_a_new_process(tmp_path, PYTHONHASHSEED="7") == "True"
    # Indices must be checked by whoever asks for it, whatever another process has compiled.
    assert compile_in_a_new_process(tmp_path, NUMBA_BOUNDSCHECK="0") == "False"
    assert compile_in_a_new_process(tmp_path) == "False"
    for file in (tmp_path / "fastplan").iterdir():
        file.write_bytes(b"damaged")
    assert compile_in_a_new_process(tmp_path) == "False"


def test_a_directory_that_is_none_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert compile_in_a_new_process(tmp_path / "file").startswith("False [Errno ")


def test_only_the_user_can_write_where_code_is_loaded_from(tmp_path):
    place = tmp_path / "fastplan"
    assert compile_in_a_new_process(tmp_path) == "False"
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o770)
    told = compile_in_a_new_process(tmp_path)
    assert told.startswith("False others can write to") and "chmod 700" in told
    place.chmod(0o755)
    assert compile_in_a_new_process(tmp_path) == "True"
    tmp_path.chmod(0o777)
    assert "False all users can write to" in compile_in_a_new_process(tmp_path)
    tmp_path.chmod(0o1777)
    assert compile_in_a_new_process(tmp_path) == "True"


def test_a_directory_that_others_can_exchange_is_refused(tmp_path, monkeypatch):
    from fastplan.costs import disk
    from fastplan.files import private

    above = tmp_path / "above"
    above.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(above))
    monkeypatch.setattr(private, "_is_own_group", lambda number: False)
    above.chmod(0o775)
    with pytest.raises(disk.DirectoryNotPrivate, match=r"can write to .*above.*chmod g-w"):
        disk.private_directory()
    monkeypatch.setattr(private, "_is_own_group", lambda number: True)
    assert disk.private_directory() == above / "fastplan"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "link").symlink_to(above)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "open" / "link"))
    with pytest.raises(disk.DirectoryNotPrivate, match=r"all users can write to .*open"):
        disk.private_directory()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_in_one_of_somebody_else_is_refused(tmp_path, monkeypatch):
    from fastplan.costs import disk

    (tmp_path / "theirs" / "mine").mkdir(parents=True)
    os.chown(tmp_path / "theirs", 65534, -1)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "theirs" / "mine"))
    with pytest.raises(disk.DirectoryNotPrivate, match=r"theirs, above .* belongs to user 65534"):
        disk.private_directory()


def test_a_directory_of_somebody_else_and_a_link_are_refused(tmp_path, monkeypatch):
    from fastplan.costs import disk

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert disk.private_directory() == tmp_path / "fastplan"
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(disk.DirectoryNotPrivate, match=f"belongs to user {os.getuid()}"):
            disk.private_directory()
    (tmp_path / "fastplan").rename(tmp_path / "other")
    (tmp_path / "fastplan").symlink_to(tmp_path / "other")
    with pytest.raises(disk.DirectoryNotPrivate, match="is not a directory"):
        disk.private_directory()


def test_a_user_without_a_home_compiles(monkeypatch):
    from fastplan.cache.stores import StoreError
    from fastplan.costs import disk

    def nowhere():
        raise StoreError("no home directory")

    monkeypatch.setattr(disk, "directory", nowhere)
    with pytest.raises(disk.DirectoryNotPrivate, match="no home directory"):
        disk.private_directory()


def test_the_place_is_beside_the_plan_cache(monkeypatch, tmp_path):
    from fastplan.costs.disk import directory

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform != "linux":
        pytest.skip("other platforms have other places")
    assert directory() == tmp_path / "fastplan" / "compiled"
