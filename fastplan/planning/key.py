"""Cache keys: the inputs that determine a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.engine.optimize import Optimize
from fastplan.model.job import Job
from fastplan.planning.policy import Replan


@dataclass(frozen=True, slots=True)
class Key:
    """A cache key: the canonical request and its fingerprint."""

    request: bytes
    fingerprint: str
    unusable: str | None = None  # why the request does not determine the plan


def key_of(job: Job, optimize: Optimize | None = None, policy: Replan | None = None) -> Key:
    """Returns the key of a job's plan: TorchRec's, optimized, or following a previous plan.

    Args:
        job: a job with a request.
        optimize: the settings of the optimizer; None for TorchRec's plan.
        policy: the re-planning policy; None for a plan from scratch.

    Returns:
        The key; it is `unusable` if a part of the job has no fingerprint.
    """
    assert job.request is not None
    custom, unusable = _custom(job)
    context: dict[str, Any] = {**job.context, "custom": custom}
    if optimize is not None:
        context["optimize"] = optimize.describe()
    if policy is not None:
        context["replan"] = policy.describe()
    ranks = len(job.cluster.rank_hbm)
    canonical = canonical_request(job.request, job.search, ranks=ranks, context=context)
    return Key(canonical, fingerprint(canonical), unusable)


def _custom(job: Job) -> tuple[list[Any], str | None]:
    """Returns what custom parts add to the key, or why one of them has no fingerprint."""
    from fastplan.costs.errors import NoFingerprint

    assert job.request is not None
    try:
        custom = job.custom()
        if job.request.pricing is not None or job.search.objective is not None:
            from fastplan.costs.keys import custom_parts

            custom = [*custom, *custom_parts(job.request, job.search)]
    except NoFingerprint as why:
        return [["unknown", str(why)]], str(why)
    return custom, None
