"""What metadata and version files tell."""

import pytest

from fastplan.doctor.installed import (
    Package,
    Requirement,
    module_folder,
    read_stack,
    requirements,
    version_of,
)


@pytest.fixture
def seen(site, monkeypatch):
    """The site in front of everything else."""
    monkeypatch.syspath_prepend(site.path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    return site


def test_a_distribution_that_is_not_there_has_no_version():
    assert version_of("no-such-distribution") is None


def test_metadata_without_a_version_is_no_crash(seen):
    seen.file("broken-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: broken\n")
    assert version_of("broken") == "unknown"


@pytest.mark.parametrize(
    ("version", "cuda", "build"),
    [
        ("2.13.0+cpu", None, "cpu"),
        ("2.13.0", None, "cpu"),
        ("2.13.0", "13.0", "cu130"),
        ("2.13.0+cu126", "12.6", "cu126"),
        ("2.13.0+cu126", None, "cu126"),
    ],
)
def test_torchs_build_is_read_without_importing_it(seen, version, cuda, build):
    seen.torch(version, cuda, code="raise RuntimeError('imported')")
    assert read_stack().torch == Package("torch", version, build)


def test_a_rocm_build_is_told_apart(seen):
    seen.package("torch", "2.13.0").file("torch/version.py", "cuda = None\nhip = '6.4.1'\n")
    assert read_stack().torch.build == "rocm6.4"


def test_a_torch_without_a_version_file_has_an_unknown_build(seen):
    seen.package("torch", "2.13.0")
    assert read_stack().torch.build is None


@pytest.mark.parametrize(
    ("name", "version", "target", "build"),
    [
        ("fbgemm-gpu-nightly", "2026.9.1", None, "cuda"),
        ("fbgemm-gpu-nightly", "2026.9.1", '{"variant": "cpu"}', "cpu"),
        ("fbgemm-gpu-nightly", "2026.9.1", '{"variant": 7}', "cuda"),
        ("fbgemm-gpu-nightly", "2026.9.1", "[]", "cuda"),
        ("fbgemm-gpu-nightly", "2026.9.1", "no JSON", "cuda"),
        ("fbgemm-gpu-nightly", "2026.9.1", '{"variant": "rocm"}', "rocm"),
        ("fbgemm-gpu-nightly", "1.8.0+cu126", '{"variant": "cuda"}', "cu126"),
        ("fbgemm-gpu-nightly-cpu", "2026.9.1", None, "cpu"),
    ],
)
def test_fbgemms_build_is_read_without_importing_it(seen, name, version, target, build):
    seen.fbgemm(version, "raise RuntimeError('imported')", name=name)
    if target is not None:
        seen.file("fbgemm_gpu/docs/target.default.json.py", target)
    assert Package(name, version, build) in read_stack().fbgemm


def test_requirements_are_those_without_an_extra(seen):
    seen.torchrec(
        requires=(
            "fbgemm-gpu",
            "torchmetrics==1.0.3",
            "tensordict (>=0.5)",
            'tqdm>=4.0; python_version >= "3.8"',
            'iopath; extra == "datasets"',
            "numpy==1.*",
        )
    )
    assert requirements("torchrec") == [
        Requirement("fbgemm-gpu", None),
        Requirement("torchmetrics", "1.0.3"),
        Requirement("tensordict", None),
        Requirement("tqdm", None),
        Requirement("numpy", None),
    ]
    assert requirements("no-such-distribution") == []


def test_where_a_package_is_does_not_depend_on_what_is_imported(seen):
    seen.package("json", "1.0")
    assert module_folder("json") == seen.path / "json"
    assert module_folder("no_such_module") is None


def test_gpus_are_those_that_the_driver_lists(seen, tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(
        "#!/bin/sh\n"
        "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'\n"
        "echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(fake))
    assert read_stack().gpus == ("NVIDIA H100 80GB HBM3",) * 2
    fake.write_text("#!/bin/sh\necho 'No devices: none'; exit 9\n")
    assert read_stack().gpus == ()
    fake.write_text("no program")
    fake.chmod(0o644)
    assert read_stack().gpus == ()
