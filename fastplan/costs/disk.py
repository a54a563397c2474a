"""Caches compiled functions on disk, so that the next process does not have to compile.

The key is the function's digest. It covers more than numba's own cache: globals, and functions in
other files. Files are pickles with machine code: a user who can write one runs code as the user who
loads it. Therefore only a directory that no other user can write to is used.
"""

from __future__ import annotations

import os
import stat
import warnings
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")


class DirectoryNotPrivate(Exception):
    """Other users can write to the directory. The message says why and what to do."""


def directory() -> Path:
    """Returns the directory: in NUMBA_CACHE_DIR if that is set, else next to the plan cache."""
    named = os.environ.get("NUMBA_CACHE_DIR", "")
    if named:
        return Path(named, "fastplan")
    from fastplan.cache.stores import default_directory

    return default_directory().with_name("compiled")


def private_directory() -> Path:
    """Returns the directory, and creates it if necessary.

    Raises:
        DirectoryNotPrivate: Other users can write to it.
        OSError: It can't be created or read.
    """
    from fastplan.cache.stores import StoreError

    try:
        place = directory()
    except StoreError as error:
        raise DirectoryNotPrivate(str(error)) from error
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if hasattr(os, "geteuid"):  # on other systems the user's folders are private
        _check_private(place)
    return place


def _check_private(place: Path) -> None:
    """Raises DirectoryNotPrivate if other users can write to the directory or replace it."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryNotPrivate(f"{place} is not a directory")
    if found.st_uid != os.geteuid():
        raise DirectoryNotPrivate(f"{place} belongs to user {found.st_uid}: set NUMBA_CACHE_DIR")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DirectoryNotPrivate(
            f"others can write to {place}: `chmod 700` it, or set NUMBA_CACHE_DIR"
        )
    for above in place.resolve().parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise DirectoryNotPrivate(
                f"all users can write to {above}, above {place}: `chmod o-w` it"
            )


def _settings() -> str:
    """Returns numba's settings that change compiled code and that its own cache ignores."""
    from numba.core import config

    return " ".join(f"{name}={getattr(config, name, None)}" for name in _SETTINGS)


def disk_cache(function: FunctionType, digest: str) -> Any:
    """Returns a cache for numba. Later errors of the disk only cause a compilation.

    Args:
        function: The function.
        digest: Its digest, which is the key.

    Raises:
        DirectoryNotPrivate: Other users can write to the directory.
        OSError: The directory can't be created or read.
    """
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

    place = str(private_directory())
    stamp = f"{digest} {_settings()}"

    class Locator(_CacheLocator):
        _py_file = function.__code__.co_filename

        def get_cache_path(self) -> str:
            return place

        def get_source_stamp(self) -> str:
            return stamp

        def get_disambiguator(self) -> str:
            return digest

        @classmethod
        def from_function(cls, *_: Any) -> Locator:
            return cls()

    class Result(CompileResultCacheImpl):
        _locator_classes = (Locator,)

    class DiskCache(FunctionCache):
        _impl_class = Result

        def load_overload(self, *request: Any) -> Any:
            try:
                return super().load_overload(*request)
            except Exception:  # a damaged file, which would also break the next save
                with suppress(OSError):
                    self.flush()
                return None

        def save_overload(self, *result: Any) -> None:
            with suppress(OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # large arrays can't be cached
                super().save_overload(*result)

    return DiskCache(function)
