"""An environment that no test's outcome depends on, and a cache in it."""

import os

import pytest

from fastplan.cache.stores import DirectoryStore


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("FASTPLAN_") or name in ("FORCE_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    # --no-color sets it; this way it is taken back.
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def where(tmp_path, monkeypatch):
    """Where the cache is that commands find by themselves."""
    monkeypatch.setenv("FASTPLAN_CACHE", str(tmp_path / "plans"))
    return tmp_path / "plans"


@pytest.fixture
def store(where):
    return DirectoryStore(where)


@pytest.fixture
def spec(request, tmp_path):
    """A file with the SPEC of the tests."""
    file = tmp_path / "model.yaml"
    file.write_text(request.module.SPEC)
    return str(file)
