"""What decides a plan, as a cache key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.engine.optimize import Optimize
from fastplan.model.job import Job
from fastplan.planning.policy import Replan


@dataclass(frozen=True, slots=True)
class Key:
    """A cache key and the canonical request that it is the fingerprint of."""

    request: bytes
    fingerprint: str
    unusable: str | None = None  # why the request does not decide the plan


def key_of(job: Job, optimize: Optimize | None = None, policy: Replan | None = None) -> Key:
    """The key of a job's plan: TorchRec's, the improved one, or one that follows another.

    Args:
        job: a job with a request.
        optimize: how TorchRec's plan is improved, if it is.
        policy: how the plan follows an older one, if it does.

    Returns:
        The key; `unusable` where some part of the job has no fingerprint.
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
    """What custom parts add to the key; or that one has no fingerprint, and why."""
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
