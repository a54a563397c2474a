"""TorchRec's event and method loggers around the planner's methods, where TorchRec has them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from torchrec.distributed.planner import planners

Method = TypeVar("Method", bound=Callable[..., Any])


def logged(method: Method) -> Method:
    """Wraps a method of the planner with TorchRec's event and method loggers.

    The method logger formats the whole module and the whole plan, so it is used only if its
    messages are logged.
    """
    wrap = getattr(planners, "_torchrec_method_logger", None)
    if wrap is None:
        return event_logged(method)
    with_messages = wrap()(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (with_messages if _is_heard() else method)(*args, **kwargs)

    return event_logged(call)  # type: ignore[return-value]


def event_logged(method: Method) -> Method:
    """Wraps a method of the planner with TorchRec's event logger, which is new in 1.7."""
    handler = getattr(planners, "EventLoggingHandler", None)
    component = getattr(planners, "TorchrecComponent", None)
    if not hasattr(handler, "event_logger") or not hasattr(component, "PLANNER"):
        return method
    return handler.event_logger(component.PLANNER)(method)  # type: ignore[no-any-return, union-attr]


def _is_heard() -> bool:
    """Whether the messages of TorchRec's method logger go anywhere."""
    from torchrec.distributed import logger as torchrec_logger

    found = getattr(torchrec_logger, "method_logger", None)
    handlers = getattr(found, "handlers", ())
    return any(not isinstance(handler, logging.NullHandler) for handler in handlers)
