"""Parity tests need TorchRec, which fastplan itself does not: without it they are left out."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torchrec") else ["test_*.py"]


@pytest.fixture(autouse=True)
def without_noise() -> Iterator[None]:
    """TorchRec warns about stock components and logs a line per proposal."""
    from .compare import quiet

    with quiet():
        yield
