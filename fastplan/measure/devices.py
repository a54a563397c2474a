"""Clocks and memory of devices, with one interface for CPUs and CUDA, and the group of all ranks.

A mark is a point in time on the device. On CUDA it is an event on the current stream, which costs
nothing and is read when the device is idle; on a CPU it is a reading of the clock.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
import torch.distributed as dist

from fastplan.measure.settings import MeasureError


class Device(Protocol):
    """The device of a rank.

    Attributes:
        torch: The torch.device.
        backend: The backend of its collectives.
        name: Its name.
    """

    torch: Any
    backend: str
    name: str

    def mark(self) -> Any:
        """Returns a mark after all work that was submitted so far."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Returns the seconds between two marks; the device must be idle."""

    def wait(self) -> None:
        """Waits until the device is idle."""

    def begin_memory(self) -> None:
        """Frees unused memory and starts the count of `peak_memory`."""

    def peak_memory(self) -> int:
        """Returns the most bytes in use since then, in addition to those in use at that time."""


def device_of(kind: str, local_rank: int) -> Device:
    """Returns the device of a rank."""
    return CudaDevice(local_rank) if kind == "cuda" else CpuDevice()


class CpuDevice:
    """All cores of a host, shared by its ranks. Memory is resident memory."""

    def __init__(self) -> None:
        self.torch = torch.device("cpu")
        self.backend = "gloo"
        self.name = _cpu_name()
        self._before = 0

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def wait(self) -> None:
        pass

    def begin_memory(self) -> None:
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # freed memory counts as resident until then
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before = _status_bytes("VmRSS")

    def peak_memory(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._before)


class CudaDevice:
    """One GPU. Memory is that of torch's allocator, without NCCL's and unified memory."""

    def __init__(self, local_rank: int) -> None:
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise MeasureError(
                f"rank {local_rank} of this host has no GPU, because there "
                f"{'is' if count == 1 else 'are'} {count} GPU{'s' * (count != 1)}: use fewer ranks "
                "with --nproc, or --device cpu"
            )
        torch.cuda.set_device(local_rank)
        self.torch = torch.device("cuda", local_rank)
        self.backend = "nccl"
        self.name = torch.cuda.get_device_name(local_rank)
        self._before = 0

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1000

    def wait(self) -> None:
        torch.cuda.synchronize(self.torch)

    def begin_memory(self) -> None:
        gc.collect()
        self.wait()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.torch)
        self._before = torch.cuda.memory_allocated(self.torch)

    def peak_memory(self) -> int:
        self.wait()
        return int(torch.cuda.max_memory_allocated(self.torch)) - self._before


def _status_bytes(name: str) -> int:
    """Returns a figure of this process's memory; 0 if the kernel does not report it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {os.cpu_count()} cores"
    return platform.processor() or platform.machine()


class RankGroup:
    """This rank in the group of all ranks, for a `with` statement.

    It has the device's collectives, and another group for control.
    """

    def __init__(self, kind: str, timeout: float) -> None:
        self.device: Device = device_of(kind, int(os.environ["LOCAL_RANK"]))
        # The launcher must notice first that the group hangs.
        limit = timedelta(seconds=3 * timeout + 60)
        dist.init_process_group(self.device.backend, timeout=limit)
        self.rank: int = dist.get_rank()
        self.count: int = dist.get_world_size()
        self.local_count = int(os.environ["LOCAL_WORLD_SIZE"])
        self._control = dist.new_group(backend="gloo", timeout=limit)

    def __enter__(self) -> RankGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.barrier()
            dist.destroy_process_group()

    def barrier(self) -> None:
        """Waits for all ranks."""
        dist.barrier(group=self._control)

    def gather(self, own: Any) -> list[Any] | None:
        """Returns the values of all ranks on rank 0, else None."""
        found = [None] * self.count if self.rank == 0 else None
        dist.gather_object(own, found, dst=0, group=self._control)
        return found
