"""Stores by what a user calls them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from fastplan.cache.stores.base import Store, StoreError
from fastplan.cache.stores.directory import DirectoryStore
from fastplan.cache.stores.memory import MemoryStore
from fastplan.cache.stores.remote import RemoteStore

Kind = Literal["memory", "directory", "url"]
_FILE_SCHEMES = ("file://", "local://")


def kind_of(where: str) -> Kind:
    """What a name means: memory of the process, a directory of this host, or a URL for fsspec."""
    if not where:
        raise ValueError("a cache must be a path, a URL, 'memory:' or a store, not ''")
    if where == "memory:":
        return "memory"
    return "url" if "://" in where and not where.startswith(_FILE_SCHEMES) else "directory"


def open_store(where: str | os.PathLike[str] | Store) -> Store:
    """The store at a path or URL; "memory:" is one store for the whole process, and a store is
    itself. Opens nothing yet: what is wrong with the place shows at the first call."""
    if isinstance(where, str):
        kind = kind_of(where)
        if kind == "memory":
            return _process_store()
        if kind == "url":
            return RemoteStore(where)
        return DirectoryStore(_path_of(where) if where.startswith(_FILE_SCHEMES) else where)
    if isinstance(where, os.PathLike):
        return DirectoryStore(where)
    if isinstance(where, Store):
        return where
    raise TypeError(f"a cache must be a path, a URL, 'memory:' or a store, not {where!r}")


def default_directory() -> Path:
    """Where the platform wants caches to be. Raises StoreError for a user without a home."""
    try:
        from platformdirs import user_cache_path

        found = user_cache_path("fastplan", appauthor=False, opinion=False) / "plans"
    except ImportError as error:
        raise StoreError(f"{error}: install it, or name a directory for the plan cache") from None
    except RuntimeError:
        found = Path()
    if not found.is_absolute():
        raise StoreError("no home directory for the plan cache: name a directory")
    return found


@cache
def _process_store() -> MemoryStore:
    return MemoryStore()


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"`where` must be a directory of this host: {url} is on {parts.netloc}")
    from urllib.request import url2pathname  # loads http, ssl and email, which paths need not

    return url2pathname(parts.path)
