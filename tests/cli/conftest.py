"""An environment that no test's outcome depends on."""

import os

import pytest


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("FASTPLAN_") or name in ("FORCE_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    # --no-color sets it; this way it is taken back.
    monkeypatch.setenv("NO_COLOR", "1")
