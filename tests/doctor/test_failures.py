"""Import errors as they are in the wild, and what they mean."""

import pytest

from fastplan.doctor.installed import Package, Stack
from fastplan.doctor.probe import Outcome
from fastplan.doctor.stack import explain

CPU = Stack(
    Package("torch", "2.13.0+cpu", "cpu"),
    (Package("fbgemm-gpu", "1.7.0", "cuda"),),
    Package("torchrec", "1.8.0"),
)
FBGEMM_FIX = "uninstall -y fbgemm-gpu && "


@pytest.mark.parametrize(
    ("errors", "meaning", "fix"),
    [
        (
            [
                "OSError: Could not load this library: /x/fbgemm_gpu/fbgemm_gpu_py.so",
                "OSError: /x/fbgemm_gpu/fbgemm_gpu_py.so: undefined symbol: _ZNK3c105Error4whatEv",
            ],
            "fbgemm-gpu 1.7.0 was built for a different torch than 2.13.0+cpu "
            "(_ZNK3c105Error4whatEv)",
            FBGEMM_FIX,
        ),
        (
            [
                "OSError: Could not load this library: /x/fbgemm_gpu/fbgemm_gpu_tbe_cache.so",
                "OSError: libcudart.so.12: cannot open shared object file: No such file",
            ],
            "fbgemm-gpu 1.7.0 is a CUDA build, but libcudart.so.12 is missing",
            FBGEMM_FIX,
        ),
        (
            ["AttributeError: '_OpNamespace' 'fbgemm' object has no attribute 'dense_to_jagged'"],
            "the library of fbgemm-gpu 1.7.0 does not load with torch 2.13.0+cpu",
            FBGEMM_FIX,
        ),
        (
            ["ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (by x.so)"],
            "the system's C or C++ library is too old (GLIBCXX_3.4.32 is missing)",
            None,
        ),
        (
            ["OSError: /lib/libm.so.6: version `GLIBC_2.35' not found (required by x.so)"],
            "the system's C or C++ library is too old (GLIBC_2.35 is missing)",
            None,
        ),
        (
            ["ImportError: /x/libgomp-1.so: cannot allocate memory in static TLS block"],
            "/x/libgomp-1.so is loaded too late",
            "export LD_PRELOAD=/x/libgomp-1.so",
        ),
        (
            ["importing crashes Python (SIGILL)"],
            "this processor lacks instructions of the build",
            None,
        ),
        (["ValueError: something new"], "ValueError: something new", None),
    ],
)
def test_an_error_is_told_by_what_it_means(errors, meaning, fix):
    text, command = explain(Outcome(errors=tuple(errors)), CPU)
    assert text.startswith(meaning)
    assert command == fix or (fix == FBGEMM_FIX and fix in command)


def test_conda_is_proposed_only_where_it_is_used(monkeypatch, tmp_path):
    outcome = Outcome(errors=("ImportError: libstdc++.so.6: version `GLIBCXX_3.4.32' not found",))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert explain(outcome, CPU)[1] is None
    (tmp_path / "conda-meta").mkdir()
    assert explain(outcome, CPU)[1] == "conda install -c conda-forge libstdcxx-ng"


def test_a_cuda_fbgemm_without_the_driver_leads_to_a_cpu_build():
    torch = Package("torch", "2.15.0", "cu130")
    stack = Stack(torch, (Package("fbgemm-gpu", "1.9.0", "cuda"),), Package("torchrec", "1.9.2"))
    error = (
        "OSError: /x/fbgemm_gpu/fbgemm_gpu_tbe_cache.so: libcuda.so.1: cannot open shared object"
    )
    text, fix = explain(Outcome(errors=(error,)), stack)
    assert text == "fbgemm-gpu 1.9.0 is a CUDA build, but libcuda.so.1 is missing"
    assert "fbgemm-gpu-cpu==1.8.*" in fix
    assert "'fbgemm-gpu==" not in fix


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("pyre_extensions", "pyre-extensions"),
        ("tensordict.nn", "tensordict"),
        ("pkg_resources", "'setuptools<81'"),
        ("torchmetrics", "torchmetrics==1.0.3"),
    ],
)
def test_a_missing_module_leads_to_its_package(module, package):
    told = explain(Outcome(errors=("ModuleNotFoundError: x",), missing=module), CPU)
    assert told[0] == f"the module {module} is missing"
    assert told[1].endswith(f"pip install {package}")


def test_missing_parts_of_the_stack_lead_to_those_that_belong_together():
    def fix(module):
        return explain(Outcome(errors=("ModuleNotFoundError: x",), missing=module), CPU)[1]

    assert "fbgemm-gpu-cpu==1.8.*" in fix("fbgemm_gpu.split_table_batched")
    assert "torchrec==1.8.0" in fix("torchrec")
    assert "torchrec==1.8.0" in fix("torch._C")


def test_a_missing_part_of_fastplan_is_told_as_it_is():
    outcome = Outcome(errors=("ModuleNotFoundError: fastplan.x",), missing="fastplan.x")
    assert explain(outcome, CPU) == ("ModuleNotFoundError: fastplan.x", None)


def test_without_a_fitting_release_the_whole_stack_is_replaced():
    stack = Stack(Package("torch", "2.99.0", "cpu"), CPU.fbgemm, CPU.torchrec)
    _, fix = explain(Outcome(errors=("OSError: /x/fbgemm_gpu_py.so: undefined symbol: y",)), stack)
    assert "torch==2.13.*" in fix
