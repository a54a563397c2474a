"""What compiled code depends on: versions, device and CPU. Nothing here imports torch."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

from fastplan import __version__
from fastplan.doctor.installed import module_folder, read_stack, version_of

# Graphs and GPU kernels are made for these, compared as they are.
CODE = ("torch", "triton", "cuda", "python", "device", "machine")
# CPU kernels are made for just this processor, and link to the C library.
KERNELS = ("cpu", "libc")

_TRITON_NAMES = ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu")


def installed_facts(device: str) -> dict[str, str]:
    """This installation on such a device; what is not installed is left out."""
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
    """The first GPU by the driver's name for it, or "cpu"."""
    gpus = read_stack().gpus
    return gpus[0] if gpus else "cpu"


def differences(made: dict[str, str], here: dict[str, str], names: Iterable[str]) -> list[str]:
    """The facts of these names that differ, in words."""
    return [
        f"{name}: made with {made.get(name, 'none')}, here is {here.get(name, 'none')}"
        for name in names
        if made.get(name) != here.get(name)
    ]


def _imported_version(name: str) -> str | None:
    """Of a package without metadata, such as one that runs from its source tree."""
    version = getattr(sys.modules.get(name), "__version__", None)
    return None if version is None else str(version)


def _cuda() -> str | None:
    """The CUDA or ROCm version that torch was built for."""
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
    """The processor and a digest of its instruction sets, of which code may use all."""
    told: dict[str, str] = {}
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():  # the first processor is described
                break
            name, _, value = line.partition(":")
            told[name.strip()] = value.strip()
    features = told.get("flags") or told.get("Features") or ""
    digest = blake2b(" ".join(sorted(features.split())).encode(), digest_size=4).hexdigest()
    return f"{told.get('model name') or platform.processor()}, features {digest}"
