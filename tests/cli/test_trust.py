"""Code that a file names is imported when the command line says so, and not before."""

import json
import sys
from dataclasses import replace

import pytest

from fastplan.cli.main import main
from fastplan.model.references import CodeNotTrusted
from fastplan.spec.lower import lower
from fastplan.spec.read import read_spec
from fastplan.sweep.file import read_sweep
from fastplan.sweep.run import run_sweep

# What it does when it is imported shows in a file: workers of a sweep are other processes.
MODULE = """
import fastplan
open("was_run", "w").close()

@fastplan.shard_cost
def cost(shard, out):
    out.fwd_compute = shard.stock.fwd_compute * 2.0

@fastplan.plan_objective
def objective(ranks, out):
    out.rating = ranks.total.max()
"""
SPEC = {
    "model": "small",
    "tables": [{"name": "t0", "rows": 1000, "dim": 64}],
    "topology": {"sku": "a100-80", "world_size": 2},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of workers
    monkeypatch.setenv("FASTPLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    (tmp_path / "strange.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("strange", None)


def written(folder, **changes):
    file = folder / "model.json"
    file.write_text(json.dumps({**SPEC, **changes}))
    return str(file)


NAMING = (
    {"cost": "strange:cost"},
    {"cost": {"function": "strange:cost", "input_element_size": 4}},
    {"objective": "strange:objective"},
)


def command(folder, name, file):
    if name == "plan":
        return ("plan", file, "--json")
    if name == "compare":
        main(("plan", written(folder), "-o", "plan.json", "--quiet"))
        return ("compare", "plan.json", "plan.json", "--model", file)
    (folder / "sweep.json").write_text(json.dumps({"models": ["model.json"]}))
    return ("precompute", "sweep.json", "--json", "--jobs", "1")


@pytest.mark.parametrize("name", ["plan", "compare", "precompute"])
@pytest.mark.parametrize("naming", NAMING, ids=["cost", "beside numbers", "objective"])
def test_code_of_a_spec_runs_only_when_it_is_trusted(folder, capsys, name, naming):
    words = command(folder, name, "model.json")
    written(folder, **naming)
    capsys.readouterr()
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "strange:" in told and "--trust-code" in told and "model.json" in told
    assert not (folder / "was_run").exists() and "strange" not in sys.modules
    assert main((*words, "--trust-code")) == 0
    assert (folder / "was_run").exists()


def test_a_model_that_a_sweep_names_runs_only_when_it_is_trusted(folder, capsys):
    (folder / "sweep.json").write_text(json.dumps({"models": ["strange:build"]}))
    assert main(("precompute", "sweep.json")) == 1
    told = capsys.readouterr().err
    assert "sweep.json:1: models[0]" in told
    assert "strange:build" in told and "--trust-code" in told
    assert "strange" not in sys.modules and not (folder / "was_run").exists()
    assert main(("precompute", "sweep.json", "--trust-code")) == 1
    assert "module strange has no 'build'" in capsys.readouterr().err


def test_a_list_of_cells_needs_no_trust(folder, capsys):
    written(folder, cost="strange:cost")
    (folder / "sweep.json").write_text(json.dumps({"models": ["model.json"]}))
    assert main(("precompute", "sweep.json", "--dry-run")) == 0
    assert "strange" not in sys.modules


def test_names_on_the_command_line_are_the_users_own(folder, capsys):
    words = ("plan", written(folder, cost="strange_and_unknown:cost"), "--json")
    assert main((*words, "--cost", "strange:cost")) == 0
    assert json.loads(capsys.readouterr().out)["notes"]["cost"] == "strange:cost"


def test_a_cost_that_comes_with_fastplan_needs_no_trust_and_looks_nowhere_else(folder, capsys):
    (folder / "cmath.py").write_text("raise SystemExit")
    written(folder, cost="fastplan.costs.stock:stock_cost")
    assert main(("plan", "model.json", "--json")) == 0
    assert str(folder) not in sys.path
    for other in ("fastplan.costs.stock:math.exp", "fastplan.cli.main:main", "fastplan:patch"):
        assert main(("plan", written(folder, cost=other))) == 1
        assert "--trust-code" in capsys.readouterr().err


def test_python_says_trust_or_passes_a_function(folder):
    from tests.costs import samples

    spec = read_spec(written(folder, cost="strange:cost", objective="strange:objective"))
    with pytest.raises(CodeNotTrusted, match=r"`cost` names strange:cost.*`--trust-code`"):
        lower(spec)
    with pytest.raises(CodeNotTrusted, match=r"`objective` names strange:objective"):
        lower(replace(spec, shard_cost=samples.uvm_is_slower))
    own = replace(spec, shard_cost=samples.uvm_is_slower, objective=samples.critical_path)
    job = lower(own)
    assert "strange" not in sys.modules
    assert job.request.pricing.function is samples.uvm_is_slower
    assert job.search.objective is samples.critical_path
    assert lower(spec, trust=True).search.objective.name == "strange:objective"


@pytest.mark.parametrize("trust", [None, 1, "yes"])
def test_trust_is_true_or_false(folder, trust):
    with pytest.raises(TypeError, match="`trust` must be True or False"):
        lower(read_spec(written(folder)), trust=trust)


def test_a_sweep_in_python_asks_before_it_plans(folder):
    written(folder, cost="strange:cost")
    (folder / "sweep.json").write_text(json.dumps({"models": ["model.json"]}))
    sweep = read_sweep("sweep.json")
    with pytest.raises(CodeNotTrusted, match="strange:cost"):
        run_sweep(sweep, executor=1)
    assert not (folder / "was_run").exists()
    assert run_sweep(sweep, executor=1, trust=True).rows[0].fits


def test_results_of_a_cost_that_may_have_changed_are_not_taken_over(folder):
    written(folder, cost="strange:cost")
    (folder / "sweep.json").write_text(json.dumps({"models": ["model.json"]}))
    sweep = read_sweep("sweep.json")
    ratings = []
    for factor in ("2.0", "3.0"):
        (folder / "strange.py").write_text(MODULE.replace("2.0", factor))
        result = run_sweep(sweep, results="rows.jsonl", executor=1, trust=True)
        ratings.append(result.rows[0].rating)
    assert ratings[0] < ratings[1]
