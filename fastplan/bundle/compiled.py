"""Compiled code, in and out of the running torch. The only file here that imports torch."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastplan.bundle.artifacts import are_artifacts
from fastplan.bundle.format import MAX_KERNEL, Names, is_kernel_path
from fastplan.files.atomic import replace_file


@dataclass(frozen=True, slots=True)
class Code:
    """What torch has compiled, or found compiled, in this process."""

    names: Names
    artifacts: bytes
    kernels: dict[str, bytes]  # by path below torch's compile cache


def device_name(slot: int) -> str:
    """The device of a local rank by torch's name for it."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    return str(torch.cuda.get_device_name(slot if slot < torch.cuda.device_count() else 0))


def recorded(since: float) -> Code | None:
    """All that this process compiled or took from a compile cache; None for nothing.

    `since` is when it began to, in seconds since 1970.
    """
    if "torch._dynamo" not in sys.modules:  # which costs seconds to import
        return None
    import torch

    found = torch.compiler.save_cache_artifacts()
    if found is None:
        return None
    data, info = found
    names = {str(kind): tuple(map(str, keys)) for kind, keys in info.artifacts.items() if keys}
    return Code(names, data, _libraries(Path(compile_cache()), since))


def load(artifacts: bytes) -> int:
    """Gives artifacts to torch, which can run them from then on; returns how many there were.

    Raises ValueError when torch can't read them.
    """
    import torch

    if not are_artifacts(artifacts):  # of which torch would log a traceback
        raise ValueError("its compile artifacts are none of torch's, or were changed since")
    info = torch.compiler.load_cache_artifacts(artifacts)
    if info is None:
        raise ValueError("torch can't read its compile artifacts")
    return sum(len(keys) for keys in info.artifacts.values())


def place_kernel(path: str, data: bytes) -> None:
    """Puts a library where torch looks for it. One that is there stays: processes may use it."""
    target = Path(compile_cache(), path)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, [data])


def compile_cache() -> str:
    """Torch's folder for what it compiles."""
    from torch._inductor.runtime.runtime_utils import cache_dir

    return os.path.realpath(str(cache_dir()))


def _libraries(folder: Path, since: float) -> dict[str, bytes]:
    """The libraries that this process has loaded from there, and those that are new.

    Torch's artifacts hold GPU kernels but no CPU kernels, only their source. New but not loaded
    is what torch built to find out about the processor, which it would build again.
    """
    paths = {Path(path) for path in _mapped() if path.startswith(f"{folder}/")}
    for parent, _, files in os.walk(folder):
        for file in files:
            if file.endswith(".so"):
                path = Path(parent, file)
                with suppress(OSError):
                    if path.stat().st_mtime >= since:
                        paths.add(path)
    found = {}
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix()
        with suppress(OSError):
            if is_kernel_path(name) and path.stat().st_size <= MAX_KERNEL:
                found[name] = path.read_bytes()
    return found


def _mapped() -> set[str]:
    """Libraries in this process's memory, where the system tells."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            fields = (line.rstrip("\n").split(maxsplit=5) for line in lines)
            return {field[5] for field in fields if len(field) == 6 and field[5].endswith(".so")}
    except OSError:
        return set()
