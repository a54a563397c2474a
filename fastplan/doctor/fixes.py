"""Command lines that put an installation right."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fastplan.doctor.installed import Package, Stack
from fastplan.doctor.releases import RELEASE_OF, TORCH_OF, minor
from fastplan.spec.stock import VERSIONS

# PyTorch's builds for one kind of device have an index each, which is for the user to look up.
_INDEX = " --index-url INDEX"
_TORCHREC_NEEDS = ("tensordict", "torchmetrics==1.0.3", "tqdm", "pyre-extensions")


def pip(arguments: str) -> str:
    """A pip command for this very Python."""
    own = shutil.which("pip")
    if own is not None and Path(own).parent == Path(sys.executable).parent:
        return f"pip {arguments}"
    return f"{sys.executable} -m pip {arguments}"


def install(packages: Iterable[str]) -> str:
    """Installs packages, as they are named in a requirements file."""
    return pip("install " + " ".join(map(_quoted, packages)))


def install_fbgemm(torch: Package, present: Iterable[Package] = ()) -> str | None:
    """Puts FBGEMM's build for this torch in place of what is there; None if there is none."""
    command = _install_fbgemm(torch, present)
    return None if command is None else _with_index_told(command, torch.build)


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
    """TorchRec alone: its own dependencies would bring FBGEMM's CUDA build along."""
    return pip(f"install --no-deps torchrec=={version}")


def install_all(stack: Stack) -> str:
    """torch, FBGEMM and TorchRec that belong together and that fastplan supports.

    A torch that is there stays if some supported TorchRec belongs to it.
    """
    build = "cpu" if stack.torch is None else stack.torch.build
    return _with_index_told(_install_all(stack), build)


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


def _with_index_told(command: str, build: str | None) -> str:
    """Says what to put for INDEX, as a comment: the line stays one for a shell."""
    if _INDEX not in command:
        return command
    return f"{command}  # INDEX: the URL of PyTorch's {build} builds, from its download page"


def _quoted(package: str) -> str:
    """Shells take `*`, `<` and `[` for themselves."""
    return f"'{package}'" if set(package) & set("*<>[") else package
