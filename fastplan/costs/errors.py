"""Errors of custom functions."""

from __future__ import annotations


class CostError(ValueError):
    """A custom cost or objective failed. The message names the function, place and reason."""


class NoFingerprint(Exception):
    """A function reads something that can't be fingerprinted. The message names it."""
