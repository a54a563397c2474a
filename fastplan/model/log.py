"""Loggers for messages with names, paths and errors from outside."""

from __future__ import annotations

import logging
from contextlib import suppress

from fastplan.model.units import escape_name


def escaped_logger(name: str) -> logging.Logger:
    """Returns a logger whose messages can't move the cursor of a terminal or turn its text.

    Args:
        name: The name of the module that logs.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


def _escape(record: logging.LogRecord) -> bool:
    with suppress(Exception):  # of an argument without a text: logging reports it and goes on
        record.msg, record.args = escape_name(record.getMessage()), None
    return True
