"""The garbage collector, out of the way while a plan is made.

A plan is many small objects that all live on, so the collector searches in vain; with torch loaded
one full search takes longer than planning a thousand tables.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collection inside the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def resumed() -> Iterator[None]:
    """Collection as usual again, for other people's code that runs inside a pause."""
    enabled = gc.isenabled()
    gc.enable()
    try:
        yield
    finally:
        if not enabled:
            gc.disable()
