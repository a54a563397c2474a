"""`fastplan explain`, as a user runs it."""

import json
import subprocess
import sys

import pytest

from fastplan.cli.main import main
from tests.cli.command import call, environment

SPEC = """
model: dlrm
batch_size: 4096
tables:
  - {name: user, rows: 40M, dim: 128, pooling: 3}
  - {name: item, rows: 4M, dim: 64, pooling: 30, sharding_types: [table_wise]}
  - {name: query, rows: 8M, dim: 64, pooling: 11}
"""


@pytest.fixture
def plan(spec, tmp_path, capsys):
    file = str(tmp_path / "plan.json")
    words = ("plan", spec, "--sku", "h100", "--world-size", "8", "--no-cache", "-o", file)
    assert main(words) == 0
    capsys.readouterr()
    return file


def test_a_table_has_options_and_reasons(plan, capsys):
    code, out, err = call(capsys, "explain", plan, "item")
    assert (code, err) == (0, "")
    assert out.startswith("ebc.item\n4,000,000 x 64")
    for words in ("* table_wise", "x row_wise fused", "the table's own constraints leave it out"):
        assert words in out


def test_json_has_the_same(plan, capsys):
    code, out, _ = call(capsys, "explain", plan, "ebc.item", "--json")
    found = json.loads(out)
    assert (code, found["table"], found["changed"]) == (0, "ebc.item", "only this table")
    assert found["options"][0]["status"] == "planned"
    assert found["options"][0]["rating"] == found["value"]
    assert all(each["replanned"] is None for each in found["options"])
    code, out, _ = call(capsys, "explain", plan, "item", "--json", "--replan")
    first = json.loads(out)["options"][0]
    assert (code, first["replanned"]) == (0, first["rating"])


def test_without_a_table_the_plan_is_explained(plan, capsys):
    code, out, _ = call(capsys, "explain", plan)
    assert code == 0
    for words in ("binds", "is the slowest with", "memory    HBM", "bound     not known"):
        assert words in out
    code, out, _ = call(capsys, "explain", plan, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["binds"]
    assert {each["table"] for each in found["tables"]} <= {"ebc.user", "ebc.item", "ebc.query"}


def test_an_unknown_table_is_named_with_the_nearest(plan, capsys):
    code, out, err = call(capsys, "explain", plan, "itme")
    assert (code, out) == (1, "")
    assert "plan.json: the plan has no table itme; did you mean item" in err


def test_a_plan_without_its_request_says_what_is_missing(tmp_path, capsys):
    file = tmp_path / "plan.json"
    placed = {"sharding_type": "row_wise", "compute_kernel": "fused", "ranks": [0, 1]}
    file.write_text(json.dumps({"ebc": {"t": placed}}))
    for words in ((), ("t",)):
        code, _, err = call(capsys, "explain", str(file), *words)
        assert code == 1
        assert "the plan has no request" in err
        assert "fastplan plan -o" in err


def test_replan_needs_a_table(plan, capsys):
    code, _, err = call(capsys, "explain", plan, "--replan")
    assert code == 1
    assert "--replan needs a table" in err


def test_cache_sizes_of_an_offload_plan_are_kept(spec, tmp_path, capsys):
    file = str(tmp_path / "plan.json")
    words = ("--costs", "hardware", "--optimize", "--offload", "--move-budget", "2000")
    words += ("--sku", "a100-40", "--world-size", "4", "--no-cache", "-o", file, "--json")
    big = tmp_path / "model.yaml"
    big.write_text(SPEC.replace("40M", "300M"))
    assert main(("plan", str(big), *words)) == 0
    planned = json.loads(capsys.readouterr().out)
    code, out, _ = call(capsys, "explain", file, "user", "--json")
    found = json.loads(out)
    assert (code, found["measure"]) == (0, "step")
    assert found["value"] == pytest.approx(planned["step"]["ms"], rel=1e-9)
    assert found["options"][0]["compute_kernel"] == "fused_uvm_caching"


def test_it_needs_no_torch(plan):
    script = (
        "import sys; from fastplan.cli.main import main; "
        f"code = main(['explain', {plan!r}, 'item']); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment()
    )
    assert ended.returncode == 0, ended.stderr
