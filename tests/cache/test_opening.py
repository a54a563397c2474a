"""Stores by what a user calls them."""

import sys
from pathlib import Path

import pytest

from fastplan.cache.stores import (
    DirectoryStore,
    MemoryStore,
    RemoteStore,
    StoreError,
    default_directory,
    kind_of,
    open_store,
)


@pytest.mark.parametrize(
    ("where", "kind", "place"),
    [
        ("/shared/plans", DirectoryStore, "/shared/plans"),
        (Path("/shared/plans"), DirectoryStore, "/shared/plans"),
        ("file:///shared/my%20plans", DirectoryStore, "/shared/my plans"),
        ("file://localhost/plans", DirectoryStore, "/plans"),
        ("memory:", MemoryStore, "memory:"),
        ("s3://bucket/plans", RemoteStore, "s3://bucket/plans"),
        ("memory://plans", RemoteStore, "memory://plans"),
        ("local:///plans", DirectoryStore, "/plans"),
    ],
)
def test_each_kind_of_place_opens_its_kind_of_store(where, kind, place):
    store = open_store(where)
    assert type(store) is kind
    assert store.describe() == place
    kinds = {"directory": DirectoryStore, "memory": MemoryStore, "url": RemoteStore}
    assert kinds[kind_of(str(where))] is kind


def test_a_store_is_itself():
    store = MemoryStore()
    assert open_store(store) is store


def test_memory_is_one_store_for_the_process():
    assert open_store("memory:") is open_store("memory:")


def test_a_relative_path_and_a_tilde_are_resolved_at_once(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    store = open_store("plans")
    monkeypatch.chdir("/")
    assert store.describe() == str(tmp_path / "plans")
    assert open_store("~/plans").describe() == "/home/me/plans"


def test_a_file_url_of_another_host_is_refused():
    with pytest.raises(ValueError, match="file://other/plans is on other"):
        open_store("file://other/plans")


def test_nothing_is_no_place():
    with pytest.raises(ValueError, match="a cache must be"):
        open_store("")
    with pytest.raises(ValueError, match="a cache must be"):
        kind_of("")
    with pytest.raises(TypeError, match="a cache must be"):
        open_store(17)


@pytest.mark.skipif(sys.platform != "linux", reason="another platform's place")
@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (None, "/home/me/.cache/fastplan/plans"),
        ("/var/cache", "/var/cache/fastplan/plans"),
        ("relative", "/home/me/.cache/fastplan/plans"),
    ],
)
def test_the_default_directory_follows_the_platform(monkeypatch, variable, expected):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
    assert default_directory().as_posix() == expected


@pytest.mark.parametrize("path", [None, Path("~/.cache/fastplan")])
def test_a_user_without_a_home_is_told(monkeypatch, path):
    def user_cache_path(*_, **__):
        if path is None:
            raise RuntimeError("could not determine the home directory")
        return path

    monkeypatch.setattr("platformdirs.user_cache_path", user_cache_path)
    with pytest.raises(StoreError, match="name a directory"):
        default_directory()
