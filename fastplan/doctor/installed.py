"""The installed packages. Metadata and version files are read; nothing is imported."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

# All of them install the same module, so only one can be installed.
FBGEMM_NAMES = (
    "fbgemm-gpu",
    "fbgemm-gpu-cpu",
    "fbgemm-gpu-nightly",
    "fbgemm-gpu-nightly-cpu",
    "fbgemm-gpu-genai",
)


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `build` is for example cpu, cu126, cuda or rocm6.4, None if unknown."""

    name: str
    version: str
    build: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Stack:
    """torch, FBGEMM and TorchRec, and what decides which builds of them can be loaded.

    Attributes:
        torch: The installed torch.
        fbgemm: All installed distributions of FBGEMM.
        torchrec: The installed TorchRec.
        gpus: The driver's names of the GPUs.
        driver: Whether the CUDA driver's library can be loaded.
        python: Major and minor version of Python.
        system: The kind of machine, as in `linux-x86_64`.
    """

    torch: Package | None
    fbgemm: tuple[Package, ...]
    torchrec: Package | None
    gpus: tuple[str, ...] = ()
    driver: bool = False
    python: tuple[int, int] = (3, 11)
    system: str = "linux-x86_64"


def version_of(name: str) -> str | None:
    """Returns the version of an installed distribution; None if it is not installed."""
    try:
        return str(distribution(name).metadata["Version"] or "unknown")
    except PackageNotFoundError:
        return None
    except KeyError:  # importlib_metadata, which some packages install in place of Python's
        return "unknown"


def read_stack() -> Stack:
    """Returns the installed torch, FBGEMM and TorchRec."""
    fbgemm = [Package(name, version, _build_of_fbgemm(name, version)) for name, version in _found()]
    torch, torchrec = version_of("torch"), version_of("torchrec")
    return Stack(
        torch=Package("torch", torch, _build_of_torch(torch)) if torch else None,
        fbgemm=tuple(fbgemm),
        torchrec=Package("torchrec", torchrec) if torchrec else None,
        gpus=_gpus(),
        driver=_has_driver(),
        python=sys.version_info[:2],
        system=f"{platform.system()}-{platform.machine()}".lower(),
    )


def _has_driver() -> bool:
    """Whether the driver's library is there. Loading it neither starts nor uses a GPU."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _gpus() -> tuple[str, ...]:
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    try:
        ended = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    lines = ended.stdout.splitlines() if ended.returncode == 0 else []
    return tuple(line.partition(": ")[2].partition(" (")[0] for line in lines if ": " in line)


def _found() -> list[tuple[str, str]]:
    versions = ((name, version_of(name)) for name in FBGEMM_NAMES)
    return [(name, version) for name, version in versions if version is not None]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a distribution, with its version if that is exact."""

    name: str
    exact: str | None

    def __str__(self) -> str:
        return f"{self.name}=={self.exact}" if self.exact else self.name


def requirements(name: str) -> list[Requirement]:
    """Returns the requirements of a distribution without its extras."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    found = []
    for line in lines:
        wanted, _, condition = line.partition(";")
        match = re.match(r"\s*([A-Za-z0-9._-]+)[^=]*(?:==\s*([^\s,()*]+)(?![\w.*]))?", wanted)
        if match and "extra" not in condition:
            found.append(Requirement(match[1], match[2]))
    return found


def module_folder(name: str) -> Path | None:
    """Returns the folder that a top-level package would be imported from."""
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _build_of_torch(version: str) -> str | None:
    """Returns the build from the package's version file or tag."""
    text = _text("torch", "version.py")
    for kind, name in (("cuda", "cu"), ("hip", "rocm")):
        found = re.search(rf"^{kind}\b[^=]*=\s*['\"]([\d.]+)", text, re.MULTILINE)
        if found:
            digits = found[1].split(".")[:2]
            return name + ("".join(digits) if name == "cu" else ".".join(digits))
    return _tag(version) or ("cpu" if text else None)


def _build_of_fbgemm(name: str, version: str) -> str | None:
    variant = None
    with suppress(ValueError, AttributeError):
        variant = json.loads(_text("fbgemm_gpu", "docs/target.default.json.py")).get("variant")
    if name.endswith("-cpu") or variant == "cpu":
        return "cpu"
    return _tag(version) or (variant if isinstance(variant, str) else "cuda")


def _tag(version: str) -> str | None:
    tag = version.partition("+")[2]
    return tag if re.match(r"(cpu|cu\d+|rocm[\d.]*)$", tag) else None


def _text(package: str, file: str) -> str:
    folder = module_folder(package)
    if folder is not None:
        with suppress(OSError, UnicodeDecodeError):
            return (folder / file).read_text()
    return ""
