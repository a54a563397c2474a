"""What one rank finds, all ranks know: a move is done by all ranks or by none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

Own = TypeVar("Own")

_KEPT = "every rank has its old plan and tables"


class ReshardError(RuntimeError):
    """Tables could not move. The message says on which rank, why, and what the job has now."""


class Ranks:
    """The ranks of a job's process group.

    Attributes:
        rank: this rank.
        size: how many there are.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def attempt(self, stage: str, work: Callable[[], tuple[Own, Any]]) -> tuple[Own, list[Any]]:
        """Does a part of the work on each rank, and shares what ranks must know of each other.

        Args:
            stage: what the work is, as in "rank 2 can't `stage`".
            work: does it. Returns what this rank keeps, and what all ranks get.

        Returns:
            What this rank keeps, and what each rank shared.

        Raises:
            ReshardError: the work failed on a rank, or a rank was lost. All ranks that are left
                raise it.
        """
        own: Any = None
        cause = None
        try:
            own, shared = work()
            outcome = ("", shared)
        except Exception as error:
            cause = error
            outcome = (f"{type(error).__name__}: {error}", None)
        outcomes = self._gather(stage, outcome)
        failed = [(rank, why) for rank, (why, _) in enumerate(outcomes) if why]
        if failed:
            rank, why = failed[0]
            raise ReshardError(f"rank {rank} can't {stage}: {why}; {_KEPT}") from cause
        return own, [shared for _, shared in outcomes]

    def _gather(self, stage: str, outcome: Any) -> list[Any]:
        outcomes: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(outcomes, outcome, group=self.group)
        except Exception as error:
            raise lost_contact(stage, error) from error
        return outcomes


def lost_contact(stage: str, error: Exception) -> ReshardError:
    """Returns the error for a rank whose group is broken."""
    return ReshardError(
        f"another rank was lost while each was to {stage}: {error}; this rank has its old plan "
        "and tables, but its process group is broken: restart the job from its checkpoint"
    )
