"""The events that TorchRec's statistics log, which are new in 1.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchrec.distributed.planner import stats


def log_event() -> Callable[..., Any] | None:
    """Returns the function that events go to, as it is now; None before 1.7."""
    handler = getattr(stats, "EventLoggingHandler", None)
    return None if handler is None else handler.log_event
