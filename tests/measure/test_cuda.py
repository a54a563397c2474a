"""The same on GPUs; skipped where there are none."""

import pytest
import torch

from fastplan.measure.calibrate import calibrate
from fastplan.measure.cases import Sizes
from fastplan.measure.devices import CudaDevice, device_of
from fastplan.measure.prepare import Subject
from fastplan.measure.probe import gpus
from fastplan.measure.results import read_runs
from fastplan.measure.run import measure
from fastplan.measure.scaling import MemoryLimit
from fastplan.measure.settings import LaunchSettings, MeasureError, Settings
from tests.measure.samples import KINDS, planned, spec

GPUS = torch.cuda.device_count()
needs_gpu = pytest.mark.skipif(GPUS < 1, reason="there is no GPU that torch can use")
needs_gpus = pytest.mark.skipif(GPUS < 2, reason=f"two GPUs are needed, torch finds {GPUS}")


@needs_gpu
def test_marks_are_times_of_the_device():
    device = device_of("cuda", 0)
    values = torch.ones(1 << 24, device=device.torch)
    begin = device.mark()
    for _ in range(50):
        values = values * 1.0001
    end = device.mark()
    device.wait()
    assert device.seconds(begin, end) > 0


@needs_gpu
def test_peak_memory_is_what_was_held_at_most():
    device = device_of("cuda", 0)
    device.begin_memory()
    values = torch.ones(1 << 24, device=device.torch)
    del values
    assert device.peak_memory() >= 1 << 26
    device.begin_memory()
    assert device.peak_memory() == 0


@needs_gpu
def test_the_probe_finds_what_torch_finds():
    found = gpus()
    assert len(found) == GPUS
    assert all(0 < gpu.free <= gpu.total for gpu in found)


@needs_gpus
def test_plans_are_measured_with_nccl(tmp_path):
    given = spec(topology={"sku": "h100", "world_size": 2})
    plans = {kind: planned(given, kind) for kind in KINDS}
    failures = measure(
        tmp_path / "runs",
        Subject(given, None, tuple(plans.values()), tuple(plans)),
        LaunchSettings(device="cuda", ranks_per_host=2, timeout=300),
        Settings(rounds=1, steps=2),
        room=MemoryLimit(1 << 40, 1 << 34),
    )
    assert failures == []
    runs = read_runs(tmp_path / "runs")
    assert [plan.label for plan in runs.plans] == list(KINDS)
    for plan in runs.plans:
        assert plan.step.median > 0
        assert max(plan.peak_memory) > 0


@needs_gpus
def test_gpus_are_calibrated_with_all_kernels():
    sizes = Sizes((64,), (32, 64, 128), (1, 8), 1000, (1 << 16, 1 << 22))
    found = calibrate(
        LaunchSettings(device="cuda", ranks_per_host=2, timeout=300), sizes, repetitions=3
    )
    kernels = {point.case.kernel for point in found.points}
    assert kernels == {"fused", "fused_uvm", "fused_uvm_caching"}
    assert "copy from host" in found.found.fits


def test_a_rank_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(MeasureError, match=r"rank 3 .*there is 1 GPU: .*--nproc"):
        CudaDevice(3)


def test_where_there_is_no_driver_nothing_is_asked(monkeypatch):
    monkeypatch.setattr("os.path.exists", lambda path: False)
    assert gpus() == []
