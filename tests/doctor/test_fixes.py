"""Commands that put an installation right."""

import sys
from pathlib import Path

import pytest

from fastplan.doctor import installed as fixes
from fastplan.doctor.installed import Package, Stack, install, install_all, install_fbgemm, pip

INDEX = "--index-url INDEX"
CUDA, CPU = (
    f"  # INDEX: the URL of PyTorch's {kind} builds, from its download page"
    for kind in ("cu126", "cpu")
)
NEEDS = "pip install tensordict torchmetrics==1.0.3 tqdm pyre-extensions"


@pytest.fixture(autouse=True)
def own_pip(monkeypatch):
    monkeypatch.setattr(fixes.shutil, "which", lambda _: str(Path(sys.executable).parent / "pip"))


def test_pip_is_called_by_name_only_where_it_is_this_pythons(monkeypatch):
    assert pip("list") == "pip list"
    monkeypatch.setattr(fixes.shutil, "which", lambda _: "/usr/elsewhere/pip")
    assert pip("list") == f"{sys.executable} -m pip list"
    monkeypatch.setattr(fixes.shutil, "which", lambda _: None)
    assert pip("list") == f"{sys.executable} -m pip list"


def test_what_a_shell_would_take_for_itself_is_quoted():
    assert install(["a", "b==1.0", "c<2", "d==1.*"]) == "pip install a b==1.0 'c<2' 'd==1.*'"


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        (Package("torch", "2.13.0+cpu", "cpu"), "pip install 'fbgemm-gpu-cpu==1.8.*'"),
        (Package("torch", "2.14.1", "cpu"), "pip install 'fbgemm-gpu-cpu==1.9.*'"),
        (Package("torch", "2.13.0", "cu130"), "pip install 'fbgemm-gpu==1.8.*'"),
        (
            Package("torch", "2.13.0+cu126", "cu126"),
            f"pip install 'fbgemm-gpu==1.8.*' {INDEX}{CUDA}",
        ),
        (Package("torch", "2.99.0", "cpu"), None),
        (Package("torch", "2.14.0.dev20260901", "cpu"), None),
    ],
)
def test_fbgemm_is_the_one_for_this_torch_and_its_build(torch, command):
    assert install_fbgemm(torch) == command


def test_what_shares_fbgemms_files_goes_first():
    present = (Package("fbgemm-gpu", "1.7.0"), Package("fbgemm-gpu-cpu", "1.8.0"))
    command = install_fbgemm(Package("torch", "2.13.0+cpu", "cpu"), present)
    assert command.startswith("pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && pip install ")


def test_a_suitable_torch_stays():
    stack = Stack(Package("torch", "2.14.0+cpu", "cpu"), (), None)
    assert install_all(stack) == (
        f"pip install 'fbgemm-gpu-cpu==1.9.*' && {NEEDS} && pip install --no-deps torchrec==1.9.2"
    )


def test_without_torch_and_gpus_everything_is_a_cpu_build():
    assert install_all(Stack(None, (), None)) == (
        f"pip install 'torch==2.13.*' {INDEX} && pip install 'fbgemm-gpu-cpu==1.8.*' && "
        f"{NEEDS} && pip install --no-deps torchrec==1.8.0{CPU}"
    )


def test_with_gpus_everything_is_a_cuda_build():
    command = install_all(Stack(None, (), None, ("H100",)))
    assert command.startswith("pip install 'torch==2.13.*' && pip install 'fbgemm-gpu==1.8.*' &&")


def test_a_torch_without_a_supported_torchrec_is_replaced_by_its_own_kind():
    fbgemm = (Package("fbgemm-gpu-cpu", "1.7.0", "cpu"),)
    cpu = install_all(Stack(Package("torch", "2.12.0+cpu", "cpu"), fbgemm, None))
    assert cpu.startswith(f"pip install 'torch==2.13.*' {INDEX} && pip uninstall -y fbgemm")
    assert cpu.endswith(CPU)
    cuda = install_all(Stack(Package("torch", "2.12.0+cu126", "cu126"), (), None))
    assert cuda.startswith("pip install 'torch==2.13.*' && pip install 'fbgemm-gpu==1.8.*' &&")


def test_a_fix_stays_a_line_for_a_shell():
    command, told = install_all(Stack(None, (), None)).split("  # ")
    assert "<" not in command
    assert told.startswith("INDEX: ")
    assert "#" not in install_all(Stack(None, (), None, ("H100",)))
