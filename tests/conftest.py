"""For all tests."""

import os
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.report.browser import Browser, find_browser

# `make wheels` runs tests where only fastplan is installed. These files import more.
if not find_spec("torchrec"):
    collect_ignore = [
        "engine/test_layout.py",
        "planning/test_run.py",
        "report/test_against_torchrec.py",
        "spec/test_shipped_costs.py",
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test that needs a package, or a folder of the checkout, that is not there."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not (find_spec(name) or Path(__file__).parents[1].joinpath(name).is_dir()):
                pytest.skip(f"needs {name}")


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a file. They are skipped if there is none."""
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium found; install one, or name it in FASTPLAN_TEST_BROWSER")
    found = Browser(program)
    yield found
    found.close()
