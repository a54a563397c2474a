"""Compiled functions are kept on disk, and whatever happens to the files is no error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
from tests.costs import samples
made = samples.critical_path.compiled()
print(made.from_disk)
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
    for file in (tmp_path / "fastplan").iterdir():
        file.write_bytes(b"damaged")
    assert compile_in_a_new_process(tmp_path) == "False"


def test_a_directory_that_is_none_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert compile_in_a_new_process(tmp_path / "file") == "False"


def test_the_place_is_beside_the_plan_cache(monkeypatch, tmp_path):
    from fastplan.costs.disk import directory

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform != "linux":
        pytest.skip("other platforms have other places")
    assert directory() == tmp_path / "fastplan" / "compiled"
