"""The stores of cache entries: a directory, memory, or any fsspec file system."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from fastplan.cache.stores.base import (
    GuardedStore,
    MemoryStore,
    Store,
    Stored,
    StoreError,
)
from fastplan.cache.stores.directory import DirectoryStore
from fastplan.cache.stores.remote import RemoteStore

__all__ = [
    "DirectoryStore",
    "GuardedStore",
    "MemoryStore",
    "RemoteStore",
    "Store",
    "StoreError",
    "Stored",
    "default_directory",
    "open_store",
]

Kind = Literal["memory", "directory", "url"]
_FILE_SCHEMES = ("file://", "local://")


def kind_of(where: str) -> Kind:
    """Returns the kind of store that a name stands for.

    Raises:
        ValueError: The name is empty.
    """
    if not where:
        raise ValueError("a cache must be a path, a URL, 'memory:' or a store, not ''")
    if where == "memory:":
        return "memory"
    return "url" if "://" in where and not where.startswith(_FILE_SCHEMES) else "directory"


def open_store(where: str | os.PathLike[str] | Store) -> Store:
    """Returns the store at a path or URL. It is opened at the first call.

    Args:
        where: A directory, a URL that fsspec supports, "memory:" for the one store in the memory of
            the process, or a store, which is returned.

    Raises:
        TypeError, ValueError: `where` is none of these.
    """
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
    """Returns the platform's directory for plan caches.

    Raises:
        StoreError: The user has no home directory.
    """
    import platformdirs

    try:
        path = platformdirs.user_cache_path("fastplan", appauthor=False, opinion=False)
    except RuntimeError:
        path = Path()
    if not path.is_absolute():
        raise StoreError("no home directory for the plan cache: name a directory")
    return path / "plans"


@cache
def _process_store() -> MemoryStore:
    return MemoryStore()


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"`where` must be a directory of this host: {url} is on {parts.netloc}")
    from urllib.request import url2pathname  # slow to import

    return url2pathname(parts.path)
