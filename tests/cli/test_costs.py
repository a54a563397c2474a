"""`fastplan costs check` and `fastplan skus NAME --costs`, as a user runs them."""

import json

import pytest

from fastplan.cli.main import main
from fastplan.model.hardware_costs import CONSTANTS
from tests.measure.test_records import COLLECTIVE, LOOKUP


@pytest.fixture
def times(tmp_path):
    path = tmp_path / "times.jsonl"
    objects = [
        {**LOOKUP, "group": "mine"},
        {**COLLECTIVE, "group": "theirs"},
        {**LOOKUP, "id": "c", "gpu": "TPU v5"},
        {"id": "d", "kind": "step", "value": 3},
    ]
    path.write_text("\n".join(map(json.dumps, objects)))
    return str(path)


def test_it_prints_ratios_by_group_and_kind_and_what_it_can_not_estimate(capsys, times):
    assert main(("costs", "check", times)) == 0
    out = capsys.readouterr().out
    for words in ("mine", "theirs", "lookup_forward fused", "collective all_to_all"):
        assert words in out
    assert "2 of 4 records can be estimated." in out
    assert "1 can't be estimated: `TPU v5` is not a known device" in out
    assert "1 can't be estimated: kind `step`" in out


def test_json_is_an_object_per_line_and_record(capsys, times):
    assert main(("costs", "check", times, "--json")) == 0
    first, second, third, fourth = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["id"], first["kernel"], first["measured_ms"]) == ("a", "fused", 0.3554)
    assert second["collective"] == "all_to_all"
    for name in ("torchrec_ms", "datasheet_ms", "hardware_ms"):
        assert first[name] > 0
        assert second[name] > 0
    assert first["reason"] is None
    assert third["hardware_ms"] is None
    assert "TPU v5" in third["reason"]
    assert fourth["measured_ms"] is None


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_at_most_is_about_the_median_of_the_hardware_costs(capsys, times, json_too):
    assert main(("costs", "check", times, "--at-most", "1.4", *json_too)) == 0
    assert main(("costs", "check", times, "--at-most", "1.001", *json_too)) == 2


def test_at_most_is_exceeded_if_nothing_can_be_estimated(capsys, tmp_path):
    path = tmp_path / "times.jsonl"
    path.write_text(json.dumps({"id": "d", "kind": "step"}))
    assert main(("costs", "check", str(path))) == 0
    assert main(("costs", "check", str(path), "--at-most", "9")) == 2
    assert "no record can be estimated" in capsys.readouterr().out


def test_a_map_names_skus(capsys, times):
    words = ("costs", "check", times, "--sku-map", "TPU v5=h100", "--json")
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[2])["sku"] == "h100"
    assert main(("costs", "check", times, "--sku-map", "TPU v5=h1000")) == 1
    assert "no hardware is called" in capsys.readouterr().err
    assert main(("costs", "check", times, "--sku-map", "h100")) == 1
    assert "GPU=SKU" in capsys.readouterr().err


def test_a_malformed_line_is_an_error_with_its_number(capsys, times):
    with open(times, "a") as file:
        file.write("\n{")
    assert main(("costs", "check", times)) == 1
    err = capsys.readouterr().err
    assert f"{times}:5: " in err
    assert "Traceback" not in err


def test_names_are_escaped(capsys, tmp_path):
    path = tmp_path / "times.jsonl"
    hostile = {**LOOKUP, "gpu": "\x1b[31mGPU", "group": "\x1b[2J", "kernel": "\x1b]0;x"}
    path.write_text(json.dumps(hostile))
    assert main(("costs", "check", str(path))) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_skus_show_their_constants(capsys):
    assert main(("skus", "h200", "--costs")) == 0
    out = capsys.readouterr().out
    for constant in CONSTANTS:
        assert f"  {constant.full_name} " in out
    assert "carried over from h100: fit to NVIDIA/recsys-examples" in out
    assert main(("skus", "h200", "--costs", "--json")) == 0
    (found,) = json.loads(capsys.readouterr().out)
    latency = found["costs"]["hbm_forward.latency"]
    assert latency["sku"] == "h100"
    assert latency["unit"] == "ms"
    assert latency["low"] < latency["value"] < latency["high"]


def test_skus_without_constants_say_so(capsys):
    assert main(("skus", "torchrec", "--costs")) == 0
    assert "torchrec has no constants" in capsys.readouterr().out
    assert main(("skus", "--costs")) == 1
    assert "--costs is for one SKU" in capsys.readouterr().err


def test_figures_leave_the_constants_out(capsys):
    assert main(("skus", "h100", "--json")) == 0
    assert "costs" not in json.loads(capsys.readouterr().out)[0]
