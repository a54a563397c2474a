"""Recordings on any file system of fsspec, such as an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from fastplan.ett.fleet.jobs import RECORDED, FleetError
from fastplan.ett.fleet.places import Found
from fastplan.ett.imports import HEAD_BYTES, MOST_BYTES, recognise
from fastplan.ett.journal import SUFFIX


def remote_places(root: str) -> Iterator[Found]:
    """Lists a URL.

    Raises:
        FleetError: fsspec or its driver is not installed, or the URL can't be listed.
    """
    try:
        core = import_module("fsspec.core")
        fs, path = core.url_to_fs(root)
        fs.invalidate_cache()
        listed = fs.find(path, detail=True)
    except ImportError as error:
        raise FleetError(
            f"{root}: {error}; install fastplan[remote] and the driver of this URL"
        ) from error
    except Exception as error:  # drivers raise exceptions of their own
        raise FleetError(f"{root} can't be listed: {type(error).__name__}: {error}") from error
    if not listed:
        raise FleetError(f"{root}: there are no files")
    scheme = root.partition("://")[0]
    jobs: dict[str, dict[str, int]] = {}
    for name, info in listed.items():
        folder, _, last = name.rpartition("/")
        if last.endswith(SUFFIX):
            jobs.setdefault(folder, {})[last] = info.get("size") or 0
        else:
            yield _remote_file(fs, _url(scheme, name), name, info)
    for folder, files in jobs.items():
        place = _url(scheme, folder)
        size = sum(files.values())
        yield Found(place, RECORDED, 0, size, tuple(sorted(files)), (fs, folder))


def _url(scheme: str, name: str) -> str:
    return f"{scheme}://{name.lstrip('/') if scheme != 'file' else name}"


def _remote_file(fs: Any, place: str, name: str, info: dict[str, Any]) -> Found:
    size = info.get("size") or 0
    kind = None
    with suppress(Exception):  # an object that can't be read is none of ours
        head = fs.cat_file(name, end=min(size, HEAD_BYTES)) if size else b""
        kind = recognise(place, head)
    return Found(place, kind or "", 0, size, (), (fs, name))


class LocalCopy:
    """The files of a remote place in a temporary directory, to be used in a `with` statement."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._folder = TemporaryDirectory(prefix="fastplan-fleet-")

    def __enter__(self) -> str:
        fs, path = self._found.remote
        folder = self._folder.name
        for name in self._found.files:
            # A name of a listing has no separators, so it can't leave the folder.
            with open(os.path.join(folder, name), "wb") as file:
                file.write(fs.cat_file(f"{path}/{name}", end=MOST_BYTES))
        return folder

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def remote_bytes(found: Found) -> bytes:
    """Returns the content of a remote file."""
    fs, path = found.remote
    return bytes(fs.cat_file(path, end=min(found.size, MOST_BYTES))) if found.size else b""
