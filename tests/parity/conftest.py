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


# These compare specs, which have the rules of few versions.
_SPECS = ["test_specs.py", "test_doors.py", "test_exports.py", "test_stock_rules.py"]


def _left_out() -> list[str]:
    if not _can_draw():
        return ["test_*.py"]
    from fastplan.spec.stock import VERSIONS
    from fastplan.torchrec.support import support

    return [] if support.torchrec_name() in VERSIONS else _SPECS


collect_ignore_glob = _left_out()


@pytest.fixture(autouse=True)
def without_noise() -> Iterator[None]:
    """TorchRec warns about stock components and logs a line per proposal."""
    from .compare import quiet

    with quiet():
        yield
