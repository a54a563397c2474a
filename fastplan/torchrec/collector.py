"""The garbage collector, out of the way while a plan is made.

A plan is many small objects that all live on, so the collector searches in vain; with torch loaded
one full search takes longer than planning a thousand tables.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

# A collection of the older generations is put off until it is due this many times over: a process
# that only makes plans still gets rid of its garbage.
_PATIENCE = 2


@contextmanager
def paused(ending: AbstractContextManager[None] | None = None) -> Iterator[None]:
    """No collection inside the block.

    At its end the objects it made are collected, and not the process: after `import torch` a full
    collection is often due, and would come with the first object made.

    Args:
        ending: entered for that collection, to time it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            with ending or nullcontext():
                _collect_youngest()
                gc.enable()


@contextmanager
def resumed() -> Iterator[None]:
    """Collection as usual again, for other people's code that runs inside a pause."""
    enabled = gc.isenabled()
    if not enabled:
        _collect_youngest()
    gc.enable()
    try:
        yield
    finally:
        if not enabled:
            gc.disable()


def _collect_youngest() -> None:
    """Does what is due for the youngest objects, so that nothing is due at once."""
    youngest, older, _ = gc.get_count()
    threshold, older_threshold, _ = gc.get_threshold()
    if 0 < threshold < youngest and older <= _PATIENCE * older_threshold:
        gc.collect(0)
