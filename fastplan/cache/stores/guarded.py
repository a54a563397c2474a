"""A store that can't hold up its user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from threading import Event, Thread
from typing import NamedTuple, TypeVar

from fastplan.cache.stores.base import (
    Store,
    Stored,
    StoreError,
    check_key,
    check_name,
    readable,
)

T = TypeVar("T")


class Deadline:
    """When a lookup must be over, however many calls it takes."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return self.left == 0.0


class Used(NamedTuple):
    """A key's entries, and whether nobody else can have written them."""

    entries: list[tuple[str, bytes]]
    is_private: bool


class GuardedStore:
    """A store whose calls end within `timeout` seconds, in StoreError if need be.

    Once a call has failed or run out of time, all further ones fail at once, so a store that is
    down costs one time-out. A call that hangs is left to a daemon thread, which neither keeps the
    interpreter alive nor delays its exit. Several calls can share a `deadline`.

    Whatever the store returns is checked: a store from elsewhere can't hand out anything but
    entries, nor more of them than fit into memory.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        if not timeout > 0:
            raise ValueError(f"`timeout` must be positive, not {timeout}")
        self._store = store
        self._timeout = timeout
        self._failure: str | None = None

    def read(self, key: str, deadline: Deadline | None = None) -> list[tuple[str, bytes]]:
        check_key(key)
        return self._call("reading", lambda: _checked(self._store.read(key)), deadline)

    def use(self, key: str, deadline: Deadline | None = None) -> Used:
        """Reads a key's entries and marks them as used, in one call."""
        check_key(key)
        is_private = getattr(self._store, "is_private", None)  # a store need not be able to tell

        def read_and_touch() -> Used:
            entries = _checked(self._store.read(key))
            own = bool(entries) and is_private is not None and is_private(key) is True
            with suppress(StoreError):  # a mark that is lost costs a later miss at most
                for name, _ in entries:
                    self._store.touch(key, name)
            return Used(entries, own)

        return self._call("reading", read_and_touch, deadline)

    def write(self, key: str, name: str, data: bytes) -> None:
        check_key(key)
        check_name(name)
        self._call("writing", lambda: self._store.write(key, name, data))

    def delete(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        self._call("deleting", lambda: self._store.delete(key, name))

    def keys(self) -> Iterator[str]:
        return iter(self._call("listing", lambda: list(self._store.keys())))

    def entries(
        self, most: int | None = None, deadline: Deadline | None = None
    ) -> Iterator[Stored]:
        """All entries, or so many of them."""
        listed = self._call("listing", lambda: list(islice(self._store.entries(), most)), deadline)
        return iter(listed)

    def touch(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        self._call("marking as used", lambda: self._store.touch(key, name))

    def describe(self) -> str:
        return self._store.describe()

    def _call(self, doing: str, action: Callable[[], T], deadline: Deadline | None = None) -> T:
        if self._failure is not None:
            raise StoreError(f"not tried again after a failure: {self._failure}")
        results: list[T] = []
        errors: list[BaseException] = []
        ended = Event()

        def work() -> None:
            try:
                results.append(action())
            except BaseException as error:  # for the caller's thread; this one ends here
                errors.append(error)
            finally:
                ended.set()

        late = f"{self.describe()}: {doing} timed out after {self._timeout:g} s"
        seconds = self._timeout if deadline is None else min(self._timeout, deadline.left)
        if not seconds:
            raise StoreError(late)
        try:
            Thread(target=work, name="fastplan-store", daemon=True).start()
        except RuntimeError as error:  # out of threads, or the interpreter ends
            raise StoreError(f"{self.describe()}: {doing} failed: {error}") from error
        if not ended.wait(seconds):
            # One that came late in a long lookup may be in order.
            if seconds > self._timeout / 2:
                self._failure = late
            raise StoreError(late)
        if results:
            return results[0]
        cause = errors[0]
        if isinstance(cause, StoreError):
            self._failure = str(cause)
        else:
            self._failure = f"{self.describe()}: {doing} failed: {type(cause).__name__}: {cause}"
        raise StoreError(self._failure) from cause


def _checked(entries: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """A key's entries as far as anybody should read them."""
    found = dict(entries)
    for name, data in found.items():
        if type(name) is not str or not isinstance(data, bytes):
            raise TypeError(f"an entry must be a name and bytes, not {name!r:.40}, {data!r:.40}")
    return [(name, found[name]) for name in readable((n, len(found[n])) for n in found)]
