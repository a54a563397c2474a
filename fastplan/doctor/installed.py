"""The installed packages, the releases that belong together, and commands that install them.

Metadata and version files are read; nothing is imported. TorchRec and FBGEMM are released with
every torch and share their numbers. FBGEMM's libraries are built for one torch and mostly don't
load with another; TorchRec is Python, and may work.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from fastplan.spec.stock import VERSIONS

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
    """torch, FBGEMM and TorchRec, and the driver's names of the GPUs."""

    torch: Package | None
    fbgemm: tuple[Package, ...]
    torchrec: Package | None
    gpus: tuple[str, ...] = ()


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
    )


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


# TorchRec and FBGEMM -> torch.
TORCH_OF = {
    "1.9": "2.14",
    "1.8": "2.13",
    "1.7": "2.12",
    "1.6": "2.11",
    "1.5": "2.10",
    "1.4": "2.9",
    "1.3": "2.8",
    "1.2": "2.7",
    "1.1": "2.6",
    "1.0": "2.5",
}
RELEASE_OF = {torch: release for release, torch in TORCH_OF.items()}


def minor(version: str) -> str | None:
    """Returns `2.13` for `2.13.0+cpu`; None for nightly builds, which have no release."""
    # Not with `packaging`: doctor must work if no package is installed.
    found = re.match(r"(\d{1,2}\.\d+)\.\d+(?!.*(dev|git))", version)
    return found[1] if found else None


def supported_torchrec(torch: str | None) -> str | None:
    """Returns the TorchRec for a torch release, if fastplan supports it."""
    release = RELEASE_OF.get(torch or "")
    return next((version for version in VERSIONS if minor(version) == release), None)


# PyTorch has an index for each kind of device, which the user must look up.
_INDEX = " --index-url INDEX"
_TORCHREC_NEEDS = ("tensordict", "torchmetrics==1.0.3", "tqdm", "pyre-extensions")


def pip(arguments: str) -> str:
    """Returns a pip command for this Python."""
    own = shutil.which("pip")
    if own is not None and Path(own).parent == Path(sys.executable).parent:
        return f"pip {arguments}"
    return f"{sys.executable} -m pip {arguments}"


def install(packages: Iterable[str]) -> str:
    """Returns the command that installs packages, given as in a requirements file."""
    return pip("install " + " ".join(map(_quoted, packages)))


def install_fbgemm(torch: Package, present: Iterable[Package] = ()) -> str | None:
    """Returns the command that replaces FBGEMM by the build for a torch; None if unknown."""
    command = _install_fbgemm(torch, present)
    return None if command is None else _with_index_comment(command, torch.build)


def _install_fbgemm(torch: Package, present: Iterable[Package]) -> str | None:
    release = RELEASE_OF.get(minor(torch.version) or "")
    if release is None:
        return None
    cpu = torch.build == "cpu"
    command = install([f"fbgemm-gpu{'-cpu' if cpu else ''}=={release}.*"])
    if not cpu and "+" in torch.version:
        command += _INDEX
    others = " ".join(package.name for package in present)
    return f"{pip(f'uninstall -y {others}')} && {command}" if others else command


def install_torchrec(version: str) -> str:
    """Returns the command for TorchRec without dependencies, which include FBGEMM's CUDA build."""
    return pip(f"install --no-deps torchrec=={version}")


def install_all(stack: Stack) -> str:
    """Returns the command that installs torch, FBGEMM and TorchRec that belong together.

    An installed torch stays if a supported TorchRec belongs to it.
    """
    build = "cpu" if stack.torch is None else stack.torch.build
    return _with_index_comment(_install_all(stack), build)


def _install_all(stack: Stack) -> str:
    torch = stack.torch
    for version in VERSIONS:
        release = minor(version) or ""
        if torch is not None and minor(torch.version) == TORCH_OF[release]:
            fbgemm = _install_fbgemm(torch, stack.fbgemm)
            return f"{fbgemm} && {install(_TORCHREC_NEEDS)} && {install_torchrec(version)}"
    version = VERSIONS[0]
    release = TORCH_OF[minor(version) or ""]
    cpu = not stack.gpus if torch is None else torch.build == "cpu"
    first = install([f"torch=={release}.*"])
    if cpu:
        first += _INDEX
    torch = Package("torch", f"{release}.0", "cpu" if cpu else None)
    return f"{first} && {_install_all(replace(stack, torch=torch))}"


def _with_index_comment(command: str, build: str | None) -> str:
    """Explains INDEX in a comment, so that the line is still valid in a shell."""
    if _INDEX not in command:
        return command
    return f"{command}  # INDEX: the URL of PyTorch's {build} builds, from its download page"


def _quoted(package: str) -> str:
    """Quotes names with characters that are special in shells."""
    return f"'{package}'" if set(package) & set("*<>[") else package
