"""The process group as measuring uses it: the device's collectives, and a group for control."""

from __future__ import annotations

import os
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch.distributed as dist

from fastplan.measure.devices import Device, device_of


class Ranks:
    """This rank among all, within a `with` statement."""

    def __init__(self, kind: str, timeout: float) -> None:
        self.device: Device = device_of(kind, int(os.environ["LOCAL_RANK"]))
        # Whoever watches the group is to notice first that it hangs.
        limit = timedelta(seconds=3 * timeout + 60)
        dist.init_process_group(self.device.backend, timeout=limit)
        self.rank: int = dist.get_rank()
        self.count: int = dist.get_world_size()
        self.local_count = int(os.environ["LOCAL_WORLD_SIZE"])
        self._control = dist.new_group(backend="gloo", timeout=limit)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.together()
            dist.destroy_process_group()

    def together(self) -> None:
        """Waits for all ranks."""
        dist.barrier(group=self._control)

    def gather(self, own: Any) -> list[Any] | None:
        """What each rank has, on rank 0."""
        found = [None] * self.count if self.rank == 0 else None
        dist.gather_object(own, found, dst=0, group=self._control)
        return found
