"""Caches compiled functions on disk, so that the next process does not have to compile.

The key is the function's digest. It covers more than numba's own cache: globals, and functions in
other files. Files are pickles with machine code: a user who can write one runs code as the user who
loads it. Therefore only a directory that no other user can write to is used.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

from fastplan.files import private
from fastplan.files.private import DirectoryNotPrivate

_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")


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
    return private.private_directory(place, "NUMBA_CACHE_DIR")


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
