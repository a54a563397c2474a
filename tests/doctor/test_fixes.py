"""Commands that put an installation right."""

import sys
from pathlib import Path

import pytest

from fastplan.doctor import releases as fixes
from fastplan.doctor.installed import Package, Stack
from fastplan.doctor.releases import install, install_all, install_fbgemm, pip

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


def machine(torch=None, fbgemm=(), **facts):
    """A machine with GPUs, a driver and a few packages, unless `facts` say otherwise."""
    return Stack(torch, fbgemm, None, **{"gpus": ("H100",), "driver": True, **facts})


def bare(torch=None, fbgemm=(), **facts):
    """A machine without GPUs and driver."""
    return machine(torch, fbgemm, gpus=(), driver=False, **facts)


CPU_TORCH = Package("torch", "2.13.0+cpu", "cpu")
CUDA_TORCH = Package("torch", "2.13.0", "cu130")


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        (CPU_TORCH, "pip install 'fbgemm-gpu-cpu==1.8.*'"),
        (Package("torch", "2.14.1", "cpu"), "pip install 'fbgemm-gpu-cpu==1.9.*'"),
        (Package("torch", "2.10.0", "cpu"), "pip install 'fbgemm-gpu-cpu==1.5.*'"),
        (CUDA_TORCH, "pip install 'fbgemm-gpu==1.8.*'"),
        (
            Package("torch", "2.13.0+cu126", "cu126"),
            f"pip install 'fbgemm-gpu==1.8.*' {INDEX}{CUDA}",
        ),
        (Package("torch", "2.99.0", "cpu"), None),
        (Package("torch", "2.9.0", "cpu"), None),  # its FBGEMM lacks builds for newer Pythons
        (Package("torch", "2.13.0", "rocm6.4"), None),
        (Package("torch", "2.14.0.dev20260901", "cpu"), None),
        (None, None),
    ],
)
def test_fbgemm_is_the_one_for_this_torch_and_its_build(torch, command):
    assert install_fbgemm(machine(torch)) == command


def test_without_the_driver_no_cuda_build_is_proposed():
    assert install_fbgemm(bare(CPU_TORCH)) == "pip install 'fbgemm-gpu-cpu==1.8.*'"
    assert install_fbgemm(bare(CUDA_TORCH)) is None
    for stack in (bare(), bare(CUDA_TORCH), bare(Package("torch", "2.15.0", "cu130"))):
        command = install_all(stack)
        assert f"'torch==2.13.*' {INDEX}" in command
        assert "'fbgemm-gpu-cpu==1.8.*'" in command
        assert command.endswith(CPU)


def test_gpus_that_are_listed_without_a_driver_library_are_no_reason_for_a_cuda_build():
    assert "fbgemm-gpu-cpu" in install_all(machine(driver=False))


def test_pip_is_forced_to_replace_a_build_of_the_same_release():
    assert install_all(bare(CUDA_TORCH)).startswith("pip install --force-reinstall 'torch==2.13.*'")
    other = install_all(bare(Package("torch", "2.15.0", "cu130")))
    assert other.startswith("pip install 'torch==2.13.*'")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"python": (3, 15)}, "FBGEMM has no builds for Python 3.15, only for 3.10 to 3.14"),
        ({"system": "darwin-arm64"}, "FBGEMM has no builds for darwin-arm64, only for linux-x"),
        ({"system": "windows-amd64"}, "FBGEMM has no builds for windows-amd64, only for linux-x"),
    ],
)
def test_where_fbgemm_has_no_builds_nothing_is_proposed(facts, why):
    for torch in (None, CPU_TORCH, CUDA_TORCH):
        stack = machine(torch, **facts)
        assert fixes.why_no_builds(stack).startswith(why)
        assert install_fbgemm(stack) is None
        assert install_all(stack) is None


def test_arm_machines_get_cpu_builds():
    for stack in (machine(system="linux-aarch64"), machine(CUDA_TORCH, system="linux-aarch64")):
        assert fixes.why_no_builds(stack) is None
        assert "fbgemm-gpu-cpu==1.8.*" in install_all(stack)


def test_rocm_builds_are_left_alone():
    assert install_all(machine(Package("torch", "2.13.0+rocm6.4", "rocm6.4"))) is None


def test_what_shares_fbgemms_files_goes_first():
    present = (Package("fbgemm-gpu", "1.7.0"), Package("fbgemm-gpu-cpu", "1.8.0"))
    command = install_fbgemm(machine(CPU_TORCH, present))
    assert command.startswith("pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && pip install ")


@pytest.mark.parametrize(
    ("torch", "fbgemm", "more", "torchrec"),
    [
        ("2.14.0+cpu", "1.9", "", "1.9.2"),
        ("2.12.0+cpu", "1.7", " iopath", "1.7.0"),
        ("2.10.0+cpu", "1.5", " iopath", "1.5.1"),
    ],
)
def test_a_torch_with_a_release_stays(torch, fbgemm, more, torchrec):
    assert install_all(machine(Package("torch", torch, "cpu"))) == (
        f"pip install 'fbgemm-gpu-cpu=={fbgemm}.*' && {NEEDS}{more} && "
        f"pip install --no-deps torchrec=={torchrec}"
    )


def test_without_torch_and_gpus_everything_is_a_cpu_build():
    assert install_all(bare()) == (
        f"pip install 'torch==2.13.*' {INDEX} && pip install 'fbgemm-gpu-cpu==1.8.*' && "
        f"{NEEDS} && pip install --no-deps torchrec==1.8.0{CPU}"
    )


def test_with_gpus_everything_is_a_cuda_build():
    command = install_all(machine())
    assert command.startswith("pip install 'torch==2.13.*' && pip install 'fbgemm-gpu==1.8.*' &&")


def test_a_torch_without_a_release_is_replaced_by_its_own_kind():
    fbgemm = (Package("fbgemm-gpu-cpu", "1.7.0", "cpu"),)
    cpu = install_all(machine(Package("torch", "2.15.0+cpu", "cpu"), fbgemm))
    assert cpu.startswith(f"pip install 'torch==2.13.*' {INDEX} && pip uninstall -y fbgemm")
    assert cpu.endswith(CPU)
    cuda = install_all(machine(Package("torch", "2.15.0+cu126", "cu126")))
    assert cuda.startswith("pip install 'torch==2.13.*' && pip install 'fbgemm-gpu==1.8.*' &&")


def test_a_fix_stays_a_line_for_a_shell():
    command, told = install_all(bare()).split("  # ")
    assert "<" not in command
    assert told.startswith("INDEX: ")
    assert "#" not in install_all(machine())
