"""Calibrations as SKU files."""

import json
from dataclasses import replace
from functools import cache

import pytest

from fastplan.cli.main import main
from fastplan.measure.calibrate import Calibrated, CalibratedSku, sku_yaml
from fastplan.measure.calibration_text import calibration_json, calibration_text
from fastplan.measure.constants import calibration
from fastplan.measure.settings import LaunchSettings
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME
from fastplan.spec.hardware import find_hardware, hardware_constants, topology_arguments
from tests.measure.points import points


@cache
def sku(device="cpu", name="lab", noise=0.01, devices=("AMD: EPYC # 'x'",)):
    measured = tuple(points(device, noise=noise))
    return CalibratedSku(
        name=name,
        like="torchrec-cpu" if device == "cpu" else "torchrec",
        group=LaunchSettings(device=device, ranks_per_host=4),
        calibrated=Calibrated(calibration(measured, device, 4, 1), measured, devices),
        host_memory=64 << 30,
        device_memory=None if device == "cpu" else 80 << 30,
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_file_is_read_as_the_hardware_that_was_measured(tmp_path, device):
    made = sku(device)
    (tmp_path / "lab.yaml").write_text(sku_yaml(made))
    found = find_hardware(str(tmp_path / "lab.yaml"))
    assert found.name == "lab"
    for name, figure in made.figures.items():
        assert getattr(found, name) == pytest.approx(figure, rel=1e-6)
    assert found.ddr == 16 << 30
    assert found.hbm == (0 if device == "cpu" else 80 << 30)
    assert topology_arguments(found, 4) == pytest.approx(made.topology)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_file_has_all_constants_of_the_hardware_costs(tmp_path, device):
    made = sku(device)
    (tmp_path / "lab.yaml").write_text(sku_yaml(made))
    found = find_hardware(str(tmp_path / "lab.yaml"))
    assert set(found.costs) == set(CONSTANTS_BY_NAME)
    assert hardware_constants(found) == pytest.approx(hardware_constants(made.hardware))
    for name, figure in found.costs.items():
        assert figure.n == made.costs.figures[name].n
        assert figure.source.startswith("measured 20" if name in made.costs.measured else "assumed")
        assert figure.note or name in made.costs.measured


def test_a_sku_with_constants_stands_in_for_what_is_not_measured(tmp_path):
    made = replace(sku("cuda"), like="h100")
    (tmp_path / "lab.yaml").write_text(sku_yaml(made))
    found = find_hardware(str(tmp_path / "lab.yaml"))
    network = found.costs["network_all_to_all.efficiency"]
    lent = find_hardware("h100").costs["network_all_to_all.efficiency"]
    assert network.source.startswith("carried over from h100: ")
    assert network.note.startswith("not measured: one host")
    # The file has another bandwidth, but the network is as fast.
    assert found.inter_host_bw * network.value == pytest.approx(
        find_hardware("h100").inter_host_bw * lent.value, rel=1e-3
    )


def test_a_gpu_is_recognized_by_its_name():
    made = sku("cuda", devices=("NVIDIA H100 80GB HBM3",))
    source = made.costs.figures["network_all_reduce.latency"].source
    assert source.startswith("carried over from h100: ")


def test_the_constants_are_shown_with_their_sources(tmp_path, capsys):
    (tmp_path / "lab.yaml").write_text(sku_yaml(sku()))
    assert main(("skus", str(tmp_path / "lab.yaml"), "--costs")) == 0
    out = capsys.readouterr().out
    assert "FBGEMM lookups on 4 ranks" in out
    assert "measured with 4 ranks only" in out


def test_measured_figures_say_so_and_others_are_the_base_s(tmp_path):
    made = sku()
    (tmp_path / "lab.yaml").write_text(sku_yaml(made))
    found = find_hardware(str(tmp_path / "lab.yaml"))
    assert found.sources["ddr_mem_bw"].startswith("measured ")
    assert found.hbm_mem_bw == find_hardware("torchrec-cpu").hbm_mem_bw
    assert "measured" not in found.sources["hbm_mem_bw"]


def test_what_is_left_out_is_said_with_the_reason():
    made = sku()
    text = sku_yaml(made)
    assert "\nhbm_mem_bw:" not in text
    assert "# not measured: hbm_mem_bw: CPUs have no HBM" in text


def test_names_of_devices_cannot_break_the_file(tmp_path):
    odd = sku(devices=('a"b\n: c\x1b[2J\u2028',))
    (tmp_path / "lab.yaml").write_text(sku_yaml(odd))
    assert find_hardware(str(tmp_path / "lab.yaml")).name == "lab"


def test_the_text_has_fits_constants_and_topology():
    text = calibration_text(sku(noise=0))
    for words in (
        "fused lookup, forward",
        "held-out error",
        "5GB/s",
        "torchrec-cpu has",
        "CPUs have no HBM",
        "domain_all_to_all.efficiency",
        "95 % interval",
        "not identified:",
        "hardware costs",
        "network_all_reduce: assumed: as fast as domain_all_reduce (not measured: one host)",
        "Topology(world_size=4, local_world_size=4",
    ):
        assert words in text


def test_the_hardware_that_the_rest_is_from_is_shown_with_escapes(tmp_path):
    path = tmp_path / "a\x1b[2J\u202e.json"
    path.write_text('{"name": "base", "like": "torchrec-cpu"}')
    text = calibration_text(replace(sku(), like=str(path)))
    assert r"a\x1b[2J\u202e.json are used" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_the_json_is_json():
    told = json.loads(json.dumps(calibration_json(sku("cuda")), allow_nan=False))
    assert told["constants"]["hbm_mem_bw"]["value"] == pytest.approx(5e6, rel=0.03)
    assert told["topology"]["world_size"] == 4
    assert "copy in memory" in told["fits"]
    assert told["costs"]["hbm_forward.efficiency"]["measured"]
    assert not told["costs"]["network_all_reduce.latency"]["measured"]
    assert told["errors"]["hbm_forward"]["torchrec"]["median"] >= 1
