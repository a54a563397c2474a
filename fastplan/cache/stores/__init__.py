"""Where entries are kept: a directory, memory, or any place fsspec reaches."""

from fastplan.cache.stores.base import Store, Stored, StoreError
from fastplan.cache.stores.directory import DirectoryStore
from fastplan.cache.stores.guarded import GuardedStore
from fastplan.cache.stores.memory import MemoryStore
from fastplan.cache.stores.opening import default_directory, open_store
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
