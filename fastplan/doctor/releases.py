"""The releases that can be loaded together, and the commands that install them.

TorchRec and FBGEMM are released with every torch and share their numbers. FBGEMM's libraries are
built for one torch, and don't load with another. TorchRec is Python: every version since 1.5 can
be imported and plans with the FBGEMM of torch 2.13. pip knows none of this, because TorchRec
requires an `fbgemm-gpu` (the CUDA build) of any version, and FBGEMM no torch at all.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fastplan.doctor.installed import Package, Stack

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
# The versions that fastplan's tests run with (requirements/torchrec-versions.txt).
TESTED = ("1.5.0", "1.5.1", "1.6.1", "1.7.0", "1.8.0", "1.9.0", "1.9.1", "1.9.2")
# The release whose torch, FBGEMM and TorchRec the tests run with.
DEFAULT = "1.8"
# The last TorchRec of each proposed release. Unlike 1.5.0 they have builds for all PYTHONS.
TORCHREC_OF = {".".join(version.split(".")[:2]): version for version in TESTED}
# FBGEMM has builds for these versions of Python and kinds of machines only.
PYTHONS = ((3, 10), (3, 14))
SYSTEMS = ("linux-x86_64", "linux-aarch64")
_CUDA_SYSTEM = "linux-x86_64"


def minor(version: str) -> str | None:
    """Returns `2.13` for `2.13.0+cpu`; None for nightly builds, which have no release."""
    # Not with `packaging`: doctor must work if no package is installed.
    found = re.match(r"(\d{1,2}\.\d+)\.\d+(?!.*(dev|git))", version)
    return found[1] if found else None


def why_no_builds(stack: Stack) -> str | None:
    """Returns why FBGEMM can't be installed on this machine; None if it can."""
    if stack.system not in SYSTEMS:
        return f"FBGEMM has no builds for {stack.system}, only for {' and '.join(SYSTEMS)}"
    first, last = PYTHONS
    if not first <= stack.python <= last:
        names = [".".join(map(str, version)) for version in (stack.python, first, last)]
        return f"FBGEMM has no builds for Python {names[0]}, only for {names[1]} to {names[2]}"
    return None


# PyTorch has an index for each kind of device, which the user must look up.
_INDEX = " --index-url INDEX"
_TORCHREC_NEEDS = ("tensordict", "torchmetrics==1.0.3", "tqdm", "pyre-extensions")
_NEED_IOPATH = ("1.5", "1.6", "1.7")


def pip(arguments: str) -> str:
    """Returns a pip command for this Python."""
    own = shutil.which("pip")
    if own is not None and Path(own).parent == Path(sys.executable).parent:
        return f"pip {arguments}"
    return f"{sys.executable} -m pip {arguments}"


def install(packages: Iterable[str]) -> str:
    """Returns the command that installs packages, given as in a requirements file."""
    return pip("install " + " ".join(map(_quoted, packages)))


def install_fbgemm(stack: Stack) -> str | None:
    """Returns the command that replaces FBGEMM by a build that loads with the installed torch.

    None if there is none: for an unknown torch, for a CUDA torch without the driver's library
    (FBGEMM's CUDA build needs it), for ROCm, and on machines without builds.
    """
    command = _install_fbgemm(stack)
    return None if command is None else _with_index_comment(command, stack.torch)


def _install_fbgemm(stack: Stack) -> str | None:
    torch = stack.torch
    release = RELEASE_OF.get(minor(torch.version) or "") if torch else None
    if torch is None or release not in TORCHREC_OF:
        return None
    if why_no_builds(stack) or not _loads(torch, stack):
        return None
    cpu = torch.build == "cpu"
    command = install([f"fbgemm-gpu{'-cpu' if cpu else ''}=={release}.*"])
    if not cpu and "+" in torch.version:
        command += _INDEX
    others = " ".join(package.name for package in stack.fbgemm)
    return f"{pip(f'uninstall -y {others}')} && {command}" if others else command


def _loads(torch: Package, stack: Stack) -> bool:
    """Whether FBGEMM's build for this build of torch can be loaded on this machine."""
    build = torch.build or "cuda"
    return build == "cpu" or (build.startswith("cu") and _can_use_cuda(stack))


def _can_use_cuda(stack: Stack) -> bool:
    return stack.driver and stack.system == _CUDA_SYSTEM


def install_torchrec(version: str) -> str:
    """Returns the command for TorchRec without dependencies, which include FBGEMM's CUDA build."""
    return pip(f"install --no-deps torchrec=={version}")


def install_all(stack: Stack) -> str | None:
    """Returns the command that installs torch, FBGEMM and TorchRec that load together.

    An installed torch stays if there is an FBGEMM for it that loads. None if there is no such set
    for this machine.
    """
    if why_no_builds(stack) or (stack.torch and (stack.torch.build or "").startswith("rocm")):
        return None
    command = _keep_torch(stack)
    torch = stack.torch
    if command is None:
        torch, command = _replace_torch(stack)
    return _with_index_comment(command, torch)


def _keep_torch(stack: Stack) -> str | None:
    fbgemm = _install_fbgemm(stack)
    if stack.torch is None or fbgemm is None:
        return None
    release = RELEASE_OF[minor(stack.torch.version) or ""]
    needs = (*_TORCHREC_NEEDS, "iopath") if release in _NEED_IOPATH else _TORCHREC_NEEDS
    return f"{fbgemm} && {install(needs)} && {install_torchrec(TORCHREC_OF[release])}"


def _replace_torch(stack: Stack) -> tuple[Package, str]:
    wants_cpu = not stack.gpus if stack.torch is None else stack.torch.build == "cpu"
    cpu = wants_cpu or not _can_use_cuda(stack)
    release = TORCH_OF[DEFAULT]
    # pip keeps a CUDA build of the same release, unless it is forced.
    same = stack.torch is not None and minor(stack.torch.version) == release
    command = pip(f"install {'--force-reinstall ' if same else ''}'torch=={release}.*'")
    if cpu:
        command += _INDEX
    torch = Package("torch", f"{release}.0", "cpu" if cpu else None)
    rest = _keep_torch(replace(stack, torch=torch))
    return torch, f"{command} && {rest}"


def _with_index_comment(command: str, torch: Package | None) -> str:
    """Explains INDEX in a comment, so that the line is still valid in a shell."""
    if _INDEX not in command:
        return command
    build = torch.build if torch else "cpu"
    return f"{command}  # INDEX: the URL of PyTorch's {build} builds, from its download page"


def _quoted(package: str) -> str:
    """Quotes names with characters that are special in shells."""
    return f"'{package}'" if set(package) & set("*<>[") else package
