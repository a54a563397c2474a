"""What determines a plan besides its request: the re-planning policy and the cache key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np

from fastplan.cache.fingerprint import canonical_request, fingerprint
from fastplan.engine.optimize import Optimize
from fastplan.engine.replan import ReplanSettings
from fastplan.model.job import Job
from fastplan.model.limits import MOST_NUMBER, check_numbers, check_whole_numbers

Objective = Literal["bytes", "rating", "payback"]
Reference = Literal["auto", "scratch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The policy for following a previous plan.

    Args:
        max_moved: the share of all bytes that may move, in addition to unavoidable moves such as
            the bytes of a lost host.
        slack: how far the rating may be above the reference, as a share.
        objective: "bytes" moves as little as the rating allows; "rating" finds the best rating for
            the bytes that may move; "payback" compares the time of the moves with the time that
            the better rating saves over `remaining_steps`.
        remaining_steps: the number of remaining training steps.
        reference: "scratch" always compares with a plan from scratch. "auto" skips that if few
            tables have changed on the same ranks and the new plan is as balanced as the previous
            one.
        rank_map: the new rank of each old one, None or -1 for a lost rank. Without it, ranks keep
            their numbers, and those beyond the new number of ranks are lost.
        max_changed: if new and changed tables have a larger share of all bytes, the plan is made
            from scratch.
        frontier: also report the best rating for each of several amounts of moved bytes.
        move_budget: the number of moves that the search may try.
        time_budget: seconds for the search. Without it, the same input gives the same plan; the
            order of options is part of the input, and depends on PYTHONHASHSEED in TorchRec 1.8.
        seed: the seed of the search.

    Raises:
        TypeError, ValueError: a value is not allowed.
    """

    max_moved: float = 0.05
    slack: float = 0.01
    objective: Objective = "bytes"
    remaining_steps: int | None = None
    reference: Reference = "auto"
    rank_map: tuple[int | None, ...] | None = None
    max_changed: float = 0.5
    frontier: bool = False
    move_budget: int = 200_000
    time_budget: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, "max_moved", "slack", "max_changed")
        check_whole_numbers(self, "remaining_steps")
        for name, most in (("max_moved", 1.0), ("slack", math.inf), ("max_changed", 1.0)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise ValueError(f"`{name}` must be between 0 and {most:g}, not {value}")
        if self.objective not in get_args(Objective):
            raise ValueError(
                f"`objective` must be one of {', '.join(get_args(Objective))}, "
                f"not {self.objective!r}"
            )
        if self.reference not in get_args(Reference):
            raise ValueError(f'`reference` must be "auto" or "scratch", not {self.reference!r}')
        if self.objective == "payback" and (self.remaining_steps or 0) <= 0:
            raise ValueError('`remaining_steps` must be positive for the objective "payback"')
        steps = self.remaining_steps
        if steps is not None and not 0 <= steps <= MOST_NUMBER:
            raise ValueError(f"`remaining_steps` must be between 0 and {MOST_NUMBER:g}")
        if not isinstance(self.frontier, bool):
            raise TypeError(f"`frontier` must be True or False, not {self.frontier!r}")
        if self.rank_map is not None:
            # Equal maps get one form: as a tuple, they have one key in the cache.
            object.__setattr__(self, "rank_map", _ranks(self.rank_map))
        self.settings  # noqa: B018  checks the other fields

    @property
    def settings(self) -> ReplanSettings:
        """The limits of the core's search."""
        return ReplanSettings(
            move_budget=self.move_budget, time_budget=self.time_budget, seed=self.seed
        )

    def describe(self) -> dict[str, Any]:
        """Returns the policy as JSON for cache keys."""
        parts = asdict(self)
        del parts["frontier"]
        if self.rank_map is None:
            del parts["rank_map"]
        return parts


def _ranks(given: Any) -> tuple[int | None, ...]:
    """Returns the new ranks of a `rank_map` as numbers of Python.

    Raises:
        TypeError: it is not a sequence of ranks. A number that is rounded, or a text that is read
            by characters, would send ranks elsewhere without a word.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
        raise TypeError(
            "`rank_map` must be a sequence with the new rank of each old one, or None for a lost "
            f"rank, not {given!r:.100}"
        )
    for before, after in enumerate(given):
        if after is not None and (isinstance(after, bool) or not isinstance(after, Integral)):
            raise TypeError(
                f"`rank_map` must send rank {before} to a whole number or None, not {after!r:.100}"
            )
    return tuple(None if after is None else int(after) for after in given)


@dataclass(frozen=True, slots=True)
class Key:
    """A cache key: the canonical request and its fingerprint."""

    request: bytes
    fingerprint: str
    unusable: str | None = None  # why the request does not determine the plan


def key_of(
    job: Job,
    optimize: Optimize | None = None,
    policy: Replan | None = None,
    previous: str | None = None,
) -> Key:
    """Returns the key of a job's plan: TorchRec's, optimized, or following a previous plan.

    Args:
        job: a job with a request.
        optimize: the settings of the optimizer; None for TorchRec's plan.
        policy: the re-planning policy; None for a plan from scratch.
        previous: the digest of the previous plan, if the user gives one.

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
    if previous is not None:
        context["previous"] = previous
    ranks = len(job.cluster.rank_hbm)
    canonical = canonical_request(job.request, job.search, ranks=ranks, context=context)
    return Key(canonical, fingerprint(canonical), unusable)


def why_no_key(job: Job) -> str | None:
    """Returns why a job's plan has no usable key; None if it has one. Cheaper than the key."""
    return job.uncacheable or _custom(job)[1]


def _custom(job: Job) -> tuple[list[Any], str | None]:
    """Returns what custom parts add to the key, or why one of them has no fingerprint."""
    from fastplan.costs.errors import NoFingerprint

    assert job.request is not None
    try:
        custom = job.custom()
        if job.request.pricing is not None or job.search.objective is not None:
            from fastplan.costs.functions import custom_parts

            custom = [*custom, *custom_parts(job.request, job.search)]
    except NoFingerprint as why:
        return [["unknown", str(why)]], str(why)
    return custom, None
