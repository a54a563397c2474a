"""Compiled functions on disk, so that the next process need not compile.

They lie under the function's digest, which covers more than numba's own cache looks at: globals,
and functions in other files.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any


def directory() -> Path:
    """Beside the plan cache, or where numba is told to keep its own."""
    named = os.environ.get("NUMBA_CACHE_DIR", "")
    if named:
        return Path(named, "fastplan")
    from fastplan.cache.stores.opening import default_directory

    return default_directory().with_name("compiled")


def disk_cache(function: FunctionType, digest: str) -> Any:
    """A cache for numba. Whatever is wrong with the disk costs a compilation, nothing else."""
    from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

    place = str(directory())

    class Locator(_CacheLocator):
        _py_file = function.__code__.co_filename

        def get_cache_path(self) -> str:
            return place

        def get_source_stamp(self) -> str:
            return digest

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
