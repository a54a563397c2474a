"""An environment that no test's outcome depends on."""

import pytest


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "FASTPLAN_CACHE"):
        monkeypatch.delenv(name, raising=False)
