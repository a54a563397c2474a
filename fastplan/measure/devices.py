"""Clocks and memory of the devices that plans run on: one interface for CPUs and CUDA.

A mark is a point in time on the device. CUDA's are events on the current stream, which cost nothing
and are read when the device is idle; a CPU's are readings of the clock.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch

from fastplan.measure.settings import MeasureError


class Device(Protocol):
    """What measuring needs of a rank's device."""

    torch: Any  # torch.device
    backend: str  # of its collectives
    name: str

    def mark(self) -> Any:
        """Now, after everything that was asked of the device so far."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks; the device must be idle."""

    def wait(self) -> None:
        """Until the device is idle."""

    def begin_memory(self) -> None:
        """Frees what is not needed; `peak_memory` counts from here."""

    def peak_memory(self) -> int:
        """The most bytes held since, beyond what was held then."""


def device_of(kind: str, local_rank: int) -> Device:
    """The device of a rank."""
    return CudaDevice(local_rank) if kind == "cuda" else CpuDevice()


class CpuDevice:
    """All cores of a host, shared by its ranks. Memory is what is resident."""

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
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = _status_bytes("VmRSS")

    def peak_memory(self) -> int:
        return max(0, _status_bytes("VmHWM") - self._before)


class CudaDevice:
    """One GPU. Memory is that of torch's allocator: neither NCCL's nor unified memory counts."""

    def __init__(self, local_rank: int) -> None:
        there = torch.cuda.device_count()
        if local_rank >= there:
            raise MeasureError(
                f"there {'is' if there == 1 else 'are'} {there} GPU{'s' * (there != 1)} for rank "
                f"{local_rank} of this host: give fewer ranks with --nproc, or --device cpu"
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
    """A figure of this process's memory; 0 where the kernel doesn't tell."""
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
