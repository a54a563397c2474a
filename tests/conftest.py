"""For all tests."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# A shell starts background jobs with Ctrl-C ignored, which they pass on; what the tests start and
# interrupt must hear it, however the tests were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def compiled_code() -> Iterator[Path]:
    """Where compiled functions are kept: what one test has compiled, the others load."""
    before = os.environ.get("NUMBA_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        yield Path(folder, "fastplan")
        if before is None:
            del os.environ["NUMBA_CACHE_DIR"]
        else:
            os.environ["NUMBA_CACHE_DIR"] = before
