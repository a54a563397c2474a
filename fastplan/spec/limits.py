"""Sizes that are still meant: beyond them a number is a mistake, in a file as on a command line."""

from __future__ import annotations

MOST_RANKS = 1 << 20
MOST_BATCH = 1 << 40  # of one rank
