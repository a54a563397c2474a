"""A store that can't hold up its user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import TypeVar

from fastplan.cache.stores.base import Store, Stored, StoreError, check_key, check_name

T = TypeVar("T")


class GuardedStore:
    """A store whose calls end within `timeout` seconds, in StoreError if need be.

    Once a call has failed or run out of time, all further ones fail at once, so a store that is
    down costs one time-out. A call that hangs is left to a daemon thread, which neither keeps the
    interpreter alive nor delays its exit.
    """

    def __init__(self, store: Store, timeout: float) -> None:
        if not timeout > 0:
            raise ValueError(f"`timeout` must be positive, not {timeout}")
        self._store = store
        self._timeout = timeout
        self._failure: str | None = None

    def read(self, key: str) -> list[tuple[str, bytes]]:
        check_key(key)
        return self._call("reading", lambda: self._store.read(key))

    def use(self, key: str) -> list[tuple[str, bytes]]:
        """Reads a key's entries and marks them as used, in one call."""
        check_key(key)

        def read_and_touch() -> list[tuple[str, bytes]]:
            entries = self._store.read(key)
            with suppress(StoreError):  # a mark that is lost costs a later miss at most
                for name, _ in entries:
                    self._store.touch(key, name)
            return entries

        return self._call("reading", read_and_touch)

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

    def entries(self) -> Iterator[Stored]:
        return iter(self._call("listing", lambda: list(self._store.entries())))

    def touch(self, key: str, name: str) -> None:
        check_key(key)
        check_name(name)
        self._call("marking as used", lambda: self._store.touch(key, name))

    def describe(self) -> str:
        return self._store.describe()

    def _call(self, doing: str, action: Callable[[], T]) -> T:
        if self._failure is not None:
            raise StoreError(f"not tried again after a failure: {self._failure}")
        results: list[T] = []
        errors: list[Exception] = []
        ended = Event()

        def work() -> None:
            try:
                results.append(action())
            except Exception as error:  # for the caller's thread to raise
                errors.append(error)
            finally:
                ended.set()

        try:
            Thread(target=work, name="fastplan-store", daemon=True).start()
        except RuntimeError as error:  # out of threads, or the interpreter ends
            raise StoreError(f"{self.describe()}: {doing} failed: {error}") from error
        if not ended.wait(self._timeout):
            self._failure = f"{self.describe()}: {doing} timed out after {self._timeout:g} s"
            raise StoreError(self._failure)
        if results:
            return results[0]
        cause = errors[0]
        if isinstance(cause, StoreError):
            self._failure = str(cause)
        else:
            self._failure = f"{self.describe()}: {doing} failed: {type(cause).__name__}: {cause}"
        raise StoreError(self._failure) from cause
