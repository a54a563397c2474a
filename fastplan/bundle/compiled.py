"""Compiled code: what it depends on, and how it gets in and out of the running torch.

Only the functions that need torch import it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from fastplan import __version__
from fastplan.bundle.format import MAX_KERNEL, Names, is_kernel_path
from fastplan.doctor.installed import module_folder, read_stack, version_of
from fastplan.files.private import make_directories
from fastplan.files.storage import replace_file

# Graphs and GPU kernels depend on exactly these.
CODE = ("torch", "triton", "cuda", "python", "device", "machine")
# CPU kernels depend on the processor and the C library.
KERNELS = ("cpu", "libc")

_TRITON_NAMES = ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu")
_VERSION = (1).to_bytes(8, "big")
_CHECKSUM = 4


@dataclass(frozen=True, slots=True)
class Code:
    """The code that torch compiled or loaded in this process; kernels are by path."""

    names: Names
    artifacts: bytes
    kernels: dict[str, bytes]


def device_name(slot: int) -> str:
    """Returns torch's name for the device of a local rank."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    return str(torch.cuda.get_device_name(slot if slot < torch.cuda.device_count() else 0))


def collect_compiled_code(since: float) -> Code | None:
    """Returns the code that this process compiled or loaded from a compile cache.

    Args:
        since: The start of the process, in seconds since 1970.

    Returns:
        The code; None if there is none.
    """
    if "torch._dynamo" not in sys.modules:  # importing it takes seconds
        return None
    import torch

    found = torch.compiler.save_cache_artifacts()
    if found is None:
        return None
    data, info = found
    names = {str(kind): tuple(map(str, keys)) for kind, keys in info.artifacts.items() if keys}
    return Code(names, data, _libraries(Path(compile_cache()), since))


def load(artifacts: bytes) -> int:
    """Loads artifacts into torch, which can run them afterwards.

    Returns:
        The number of artifacts.

    Raises:
        ValueError: torch can't read them.
    """
    import torch

    if not are_artifacts(artifacts):  # torch would log a traceback
        raise ValueError("its compile artifacts are not from torch, or were changed")
    info = torch.compiler.load_cache_artifacts(artifacts)
    if info is None:
        raise ValueError("torch can't read its compile artifacts")
    return sum(len(keys) for keys in info.artifacts.values())


def place_kernel(path: str, data: bytes) -> None:
    """Copies a library into torch's compile cache. An existing file stays: it may be in use.

    Only this user can write to the copy.
    """
    target = Path(compile_cache(), path)
    if target.exists():
        return
    make_directories(target.parent)
    replace_file(target, [data], others_write=False)


def compile_cache() -> str:
    """Returns the folder of torch's compile cache."""
    from torch._inductor.runtime.runtime_utils import cache_dir

    return os.path.realpath(str(cache_dir()))


def are_artifacts(data: bytes) -> bool:
    """Returns whether bytes look like torch's compile artifacts and are intact.

    They begin with a version. Newer releases of torch write a checksum before it.
    """
    if data.startswith(_VERSION):
        return True
    rest = memoryview(data)[_CHECKSUM:]
    return rest[: len(_VERSION)] == _VERSION and data[:_CHECKSUM] == crc32(rest).to_bytes(4, "big")


def environment_facts(device: str) -> dict[str, str]:
    """Returns the versions and the processor here, with this device; omits missing packages."""
    found = {
        "fastplan": __version__,
        "torch": version_of("torch") or _imported_version("torch"),
        "torchrec": version_of("torchrec") or _imported_version("torchrec"),
        "triton": next(filter(None, map(version_of, _TRITON_NAMES)), None),
        "cuda": _cuda(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "device": device,
        "machine": platform.machine(),
        "cpu": _cpu(),
        "libc": " ".join(platform.libc_ver()).strip(),
    }
    return {name: fact for name, fact in found.items() if fact}


def driver_device() -> str:
    """Returns the driver's name for the first GPU, or "cpu"."""
    gpus = read_stack().gpus
    return gpus[0] if gpus else "cpu"


def differences(made: dict[str, str], here: dict[str, str], names: Iterable[str]) -> list[str]:
    """Returns the facts that differ, as text."""
    return [
        f"{name}: made with {made.get(name, 'none')}, here is {here.get(name, 'none')}"
        for name in names
        if made.get(name) != here.get(name)
    ]


def _libraries(folder: Path, since: float) -> dict[str, bytes]:
    """Returns the libraries that this process has loaded from a folder, and new ones.

    torch's artifacts contain GPU kernels, but only the source of CPU kernels. torch also builds
    libraries to detect the features of the processor: these are new, but not loaded.
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
    """Returns the libraries in this process's memory; empty if the system does not list them."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            fields = (line.rstrip("\n").split(maxsplit=5) for line in lines)
            return {field[5] for field in fields if len(field) == 6 and field[5].endswith(".so")}
    except OSError:
        return set()


def _imported_version(name: str) -> str | None:
    """Returns the version of a package without metadata, such as one in a source tree."""
    version = getattr(sys.modules.get(name), "__version__", None)
    return None if version is None else str(version)


def _cuda() -> str | None:
    """Returns the CUDA or ROCm version that torch was built for."""
    folder = module_folder("torch")
    text = ""
    if folder is not None:
        with suppress(OSError, UnicodeDecodeError):
            text = (folder / "version.py").read_text()
    for kind in ("cuda", "hip"):
        if found := re.search(rf"^{kind}\b[^=]*=\s*['\"]([\w.-]+)", text, re.MULTILINE):
            return found[1] if kind == "cuda" else f"ROCm {found[1]}"
    return None


def _cpu() -> str:
    """Returns the processor and a digest of its instruction sets; code may use all of them."""
    info: dict[str, str] = {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():  # the first processor is described
                break
            name, _, value = line.partition(":")
            info[name.strip()] = value.strip()
    features = info.get("flags") or info.get("Features") or ""
    digest = blake2b(" ".join(sorted(features.split())).encode(), digest_size=4).hexdigest()
    return f"{info.get('model name') or platform.processor()}, features {digest}"
