"""Compiled functions on disk, so that the next process need not compile.

They lie under the function's digest, which covers more than numba's own cache looks at: globals,
and functions in other files. They are pickles with machine code: whoever can write one runs code
as the user who loads it, so only a directory that nobody else can write to is used.
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
    """A directory that code can't be loaded from; says why, and the way out."""


def directory() -> Path:
    """Beside the plan cache, or where numba is told to keep its own."""
    named = os.environ.get("NUMBA_CACHE_DIR", "")
    if named:
        return Path(named, "fastplan")
    from fastplan.cache.stores import default_directory

    return default_directory().with_name("compiled")


def private_directory() -> Path:
    """The directory, made if need be. Raises DirectoryNotPrivate and OSError."""
    from fastplan.cache.stores import StoreError

    try:
        place = directory()
    except StoreError as error:
        raise DirectoryNotPrivate(str(error)) from error
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if hasattr(os, "geteuid"):  # elsewhere the user's own folders are private
        _check_private(place)
    return place


def _check_private(place: Path) -> None:
    """Nobody else may write into the directory, or put another one in its place."""
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise DirectoryNotPrivate(f"{place} is no directory")
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
                f"everybody can write to {above}, above {place}: `chmod o-w` it"
            )


def _settings() -> str:
    """Numba's settings that change what it compiles, and that its own cache does not look at."""
    from numba.core import config

    return " ".join(f"{name}={getattr(config, name, None)}" for name in _SETTINGS)


def disk_cache(function: FunctionType, digest: str) -> Any:
    """A cache for numba. What goes wrong with the disk later costs a compilation, nothing else.

    Raises:
        DirectoryNotPrivate: others can write to the directory.
        OSError: the directory can't be made or read.
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
            except Exception:  # a damaged file, which the next save would stumble over too
                with suppress(OSError):
                    self.flush()
                return None

        def save_overload(self, *result: Any) -> None:
            with suppress(OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # large arrays can't be kept
                super().save_overload(*result)

    return DiskCache(function)
