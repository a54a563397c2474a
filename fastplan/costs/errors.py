"""What can go wrong with a custom function."""

from __future__ import annotations


class CostError(ValueError):
    """A custom cost or objective that can't be used; says which, where, and why."""


class NoFingerprint(Exception):
    """A function depends on something that can't be fingerprinted; says on what."""
