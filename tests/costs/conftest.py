"""Compiled functions of the tests stay in a directory of their own, for the whole run."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def compiled_code() -> Iterator[Path]:
    # One place for all tests: what one has compiled, the others load.
    before = os.environ.get("NUMBA_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        yield Path(folder, "fastplan")
        if before is None:
            del os.environ["NUMBA_CACHE_DIR"]
        else:
            os.environ["NUMBA_CACHE_DIR"] = before
