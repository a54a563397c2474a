"""What custom functions add to the key of a request."""

from __future__ import annotations

from typing import Any

from fastplan.model.request import Request, Search


def custom_parts(request: Request, search: Search) -> list[list[Any]]:
    """A request's own functions by their fingerprints. Raises NoFingerprint."""
    parts: list[list[Any]] = []
    pricing = request.pricing
    if pricing is not None:
        # The batch size is otherwise only in the products that costs are made of.
        function = pricing.function
        parts.append(["shard_cost", function.name, function.fingerprint(), pricing.batch_size])
    if search.objective is not None:
        parts.append(["objective", search.objective.name, search.objective.fingerprint()])
    return parts
