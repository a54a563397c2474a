"""Entries on any fsspec file system, such as object stores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib import import_module
from typing import Any

from fastplan.cache.entry import is_key
from fastplan.cache.stores.base import (
    SUFFIX,
    Stored,
    StoreError,
    check_key,
    check_name,
    name_of_file,
    readable,
)


class RemoteStore:
    """Entries under an fsspec URL, such as s3://bucket/plans.

    Nothing is imported or connected before the first call. Object stores replace objects
    atomically; with other drivers, a reader can get part of an entry, which its checksum detects.
    There is no size limit, and uses are not recorded: object stores have their own rules for
    expiry, and can't change an object's time without writing it again.

    Args:
        url: The URL.
        **storage_options: Options for the fsspec driver.
    """

    def __init__(self, url: str, **storage_options: Any) -> None:
        self._url = url
        self._options = storage_options
        self._opened: tuple[Any, str] | None = None

    def read(self, key: str) -> list[tuple[str, bytes]]:
        check_key(key)
        found = []
        with self._reported("reading"):
            fs, root = self._open()
            folder = _folder(root, key)
            fs.invalidate_cache(folder)
            try:
                listed = fs.ls(folder, detail=True)
            except FileNotFoundError:
                return []
            paths, sizes = {}, {}
            for info in listed:
                name = name_of_file(info["name"].rpartition("/")[2])
                if name is not None and info["type"] == "file":
                    paths[name], sizes[name] = info["name"], info["size"] or 0
            for name in readable(sizes.items()):
                with suppress(FileNotFoundError):  # deleted after the listing
                    # Not more than was listed, if another process replaces it. An empty
                    # file has no range.
                    end = sizes[name] or None
                    found.append((name, bytes(fs.cat_file(paths[name], end=end))))
        return found

    def write(self, key: str, name: str, data: bytes) -> None:
        check_key(key)
        check_name(name)
        with self._reported("writing"):
            fs, root = self._open()
            path = _path(root, key, name)
            try:
                fs.pipe_file(path, data)
            except FileNotFoundError:
                # A file system with real folders, or a missing bucket. A bucket is not created,
                # because the name may be a typo.
                if not fs.exists(root):
                    raise StoreError(f"{self.describe()} does not exist: create it first") from None
                fs.makedirs(_folder(root, key), exist_ok=True)
                fs.pipe_file(path, data)

    def delete(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        with self._reported("deleting"):
            fs, root = self._open()
            with suppress(FileNotFoundError):
                fs.rm_file(_path(root, key, name))

    def keys(self) -> Iterator[str]:
        return iter(sorted({stored.key for stored in self.entries()}))

    def entries(self) -> Iterator[Stored]:
        with self._reported("listing"):
            fs, root = self._open()
            fs.invalidate_cache()
            try:
                files = fs.find(root, detail=True)
            except FileNotFoundError:
                files = {}
        found = []
        for path, info in files.items():
            prefix, key, file_name = ["", "", "", *path.split("/")][-3:]
            name = name_of_file(file_name)
            if is_key(key) and key[:2] == prefix and name:
                found.append(Stored(key, name, info.get("size") or 0, _modified_time(info)))
        return iter(sorted(found))

    def touch(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)

    def describe(self) -> str:
        """Returns the URL without user, password and query, which may be secret."""
        return re.sub(r"//[^/@]*@", "//", self._url).partition("?")[0]

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            try:
                fsspec = import_module("fsspec")
            except ImportError:
                raise StoreError(f"{self.describe()} needs fsspec: pip install fsspec") from None
            try:
                fs, root = fsspec.url_to_fs(self._url, **self._options)
            except ImportError as error:
                driver = getattr(error.__cause__, "name", None) or error.name
                way_out = f"pip install {driver}" if driver else str(error)
                raise StoreError(f"{self.describe()} needs a driver: {way_out}") from error
            self._opened = fs, root.rstrip("/")
        return self._opened

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # drivers raise errors of their libraries
            raise StoreError(
                f"{self.describe()}: {doing} failed: {type(error).__name__}: {error}"
            ) from error


def _modified_time(info: Mapping[str, Any]) -> float | None:
    """Returns the time of the last change; drivers use different names for it."""
    times = (info.get(name) for name in ("LastModified", "mtime", "updated", "created"))
    time = next(filter(None, times), None)
    if isinstance(time, str):
        with suppress(ValueError):
            time = datetime.fromisoformat(time.replace("Z", "+00:00"))
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    with suppress(OverflowError):
        if isinstance(time, int | float) and math.isfinite(time):
            return float(time)
    return None


def _folder(root: str, key: str) -> str:
    return f"{root}/{key[:2]}/{key}"


def _path(root: str, key: str, name: str) -> str:
    return f"{_folder(root, key)}/{name}{SUFFIX}"
