"""The parts of a request's key for custom functions."""

from __future__ import annotations

from typing import Any

from fastplan.model.request import Request, Search


def custom_parts(request: Request, search: Search) -> list[list[Any]]:
    """Returns the fingerprints of a request's custom functions.

    Raises:
        NoFingerprint: A function reads something that can't be fingerprinted.
    """
    parts: list[list[Any]] = []
    pricing = request.pricing
    if pricing is not None:
        # Custom functions can read the batch size; the rest of the key has it only in products.
        function = pricing.function
        parts.append(["shard_cost", function.name, function.fingerprint(), pricing.batch_size])
    if search.objective is not None:
        parts.append(["objective", search.objective.name, search.objective.fingerprint()])
    return parts
