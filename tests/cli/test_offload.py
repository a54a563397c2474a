"""`fastplan plan --offload`, as a user runs it."""

import json

import pytest

from fastplan.cli.main import main
from fastplan.plans.file import read_plan
from fastplan.spec.ids import statistics_text
from tests.ids import skewed_statistics

SPEC = """
model: ranker
batch_size: 1024
reservation: {policy: absolute}
tables:
""" + "".join(
    f"  - {{name: t{i}, rows: 20M, dim: 128, pooling: {5 * (i + 1)}, optimizer: rowwise_adagrad}}\n"
    for i in range(4)
)
TOPOLOGY = "topology: {sku: h100, world_size: 4, hbm: 4GB}\n"
MOVES = ("--optimize", "--move-budget", "3000", "--offload", "--no-cache")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(SPEC + TOPOLOGY)
    ids = {f"t{i}": skewed_statistics(20_000_000) for i in range(4)}
    (tmp_path / "ids.json").write_text(statistics_text(ids))
    return tmp_path


def plan(*words):
    return main(("plan", "model.yaml", "--statistics", "ids.json", *MOVES, *words))


def sizes(file):
    """Load factors by table."""
    layout = read_plan(file).layout
    return {t.name: t.settings.get("cache_params", {}).get("load_factor") for t in layout.tables}


def test_the_plan_file_has_cache_sizes(folder, capsys):
    assert plan("--costs", "hardware", "--json", "-o", "plan.json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["fits"] and shown["step"]["statistics"] == 4
    found = sizes("plan.json")
    assert any(factor is not None and 0 < factor < 1 for factor in found.values())
    assert main(("inspect", "plan.json")) == 0


def test_a_plan_for_few_bytes_has_fewer_and_says_how_few(folder, capsys):
    found = {}
    for minimize in ("link_bytes", "step"):
        assert plan("--costs", "hardware", "--minimize", minimize, "--json") == 0
        found[minimize] = json.loads(capsys.readouterr().out)
    bytes_of = {name: int(shown["notes"]["link_bytes"]) for name, shown in found.items()}
    assert 0 < bytes_of["link_bytes"] <= bytes_of["step"]
    assert found["link_bytes"]["step"]["ms"] >= found["step"]["step"]["ms"]


def test_what_offload_needs_is_said(folder, capsys):
    assert plan() != 0
    assert "`offload` needs hardware costs" in capsys.readouterr().err
    without = ("--optimize", "--minimize", "link_bytes", "--costs", "hardware")
    assert main(("plan", "model.yaml", *without)) != 0
    assert "only with --offload" in capsys.readouterr().err
