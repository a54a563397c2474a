"""Streams of ids, followed by the core with bounded memory."""

from __future__ import annotations

from fastplan.engine._native import IdStream, bin_edges, id_hashes

__all__ = ["COLD", "HOT", "RETIRED", "IdStream", "bin_edges", "id_hashes"]

# How an id is followed; the numbers are those of cpp/profile/id_stream.h.
COLD, HOT, RETIRED = 1, 2, 3
