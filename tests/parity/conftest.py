"""Parity tests need TorchRec, which fastplan itself does not: without it they are left out.

They draw estimators of a package that is new in TorchRec 1.6. For older versions,
tests/torchrec/test_any_version.py compares plans.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest


def _can_draw() -> bool:
    return find_spec("torchrec") is not None and (
        find_spec("torchrec.distributed.planner.estimator") is not None
    )


collect_ignore_glob = [] if _can_draw() else ["test_*.py"]


@pytest.fixture(autouse=True)
def without_noise() -> Iterator[None]:
    """TorchRec warns about stock components and logs a line per proposal."""
    from .compare import quiet

    with quiet():
        yield
