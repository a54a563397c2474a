"""Functions that specs and command lines name."""

import json
from dataclasses import replace

import pytest

from fastplan import CostError
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import MemoryStore
from fastplan.cli.main import main
from fastplan.costs.functions import find_cost, find_objective
from fastplan.files.document import SpecError
from fastplan.planning.plan import plan
from fastplan.planning.policy import key_of
from fastplan.spec.lower import lower
from fastplan.spec.read import read_spec
from fastplan.spec.write import write_spec

from . import samples

HERE = "tests.costs.samples"
SPEC = {
    "model": "named",
    "tables": [
        {"name": "t0", "rows": "1M", "dim": 64, "pooling": 3},
        {"name": "t1", "rows": 90, "dim": 32},
    ],
    "topology": {"sku": "a100-80", "world_size": 4},
}


def written(folder, **changes):
    file = folder / "model.json"
    file.write_text(json.dumps({**SPEC, **changes}))
    return file


def planned(file, cache=None):
    return plan(lower(read_spec(file), trust=True), cache=cache)


def test_a_spec_names_a_cost_and_an_objective(tmp_path):
    stock = planned(written(tmp_path))
    cost = planned(written(tmp_path, cost=f"{HERE}:uvm_is_slower"))
    both = planned(
        written(
            tmp_path, cost={"function": f"{HERE}:uvm_is_slower"}, objective=f"{HERE}:critical_path"
        )
    )
    assert cost.job.request.pricing.function is samples.uvm_is_slower
    assert len({stock.key, cost.key, both.key}) == 3
    assert stock.rating < cost.rating and both.rating <= cost.rating
    notes = both.plan().notes
    assert notes["cost"].endswith(":uvm_is_slower")
    assert notes["objective"].endswith(":critical_path")


def test_a_named_cost_beside_numbers_is_written_and_read_back(tmp_path):
    functions = {"shard_cost": f"{HERE}:uvm_is_slower", "objective": f"{HERE}:critical_path"}
    for numbers in ({}, {"input_element_size": 4.0}):
        spec = replace(read_spec(written(tmp_path)), cost=numbers, **functions)
        for name in ("again.json", "again.yaml"):
            write_spec(spec, tmp_path / name)
            again = read_spec(tmp_path / name)
            assert (again.cost, again.shard_cost) == (numbers, spec.shard_cost)
            assert again.objective == spec.objective


def test_plans_with_functions_are_cached_and_verified(tmp_path):
    cache = Cache(MemoryStore())
    file = written(tmp_path, cost=f"{HERE}:uvm_is_slower", objective=f"{HERE}:critical_path")
    runs = [planned(file, cache) for _ in range(2)]
    assert [run.cache.status for run in runs] == ["miss", "hit"]
    assert runs[0].rating == runs[1].rating


def test_what_has_no_fingerprint_is_not_cached(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "FACTOR", object())
    with pytest.raises(CostError, match="uvm_is_slower can't be compiled"):
        planned(written(tmp_path, cost=f"{HERE}:uvm_is_slower"), Cache(MemoryStore()))
    job = lower(read_spec(written(tmp_path, cost=f"{HERE}:uvm_is_slower")), trust=True)
    assert "can't be fingerprinted: `FACTOR` is a object" in key_of(job).unusable


def test_a_text_that_is_no_name_is_told_with_its_line(tmp_path):
    for field in ("cost", "objective"):
        with pytest.raises(SpecError, match=f"{field}.*must be package.module:function"):
            read_spec(written(tmp_path, **{field: "my_cost"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such.module:f", "no.such.module can't be imported: ModuleNotFoundError"),
        (f"{HERE}:nobody", "has no 'nobody'"),
        (f"{HERE}:priced", "is not a function with @fastplan.shard_cost"),
        (f"{HERE}:critical_path", "is not a function with @fastplan.shard_cost"),
    ],
)
def test_names_that_lead_nowhere_are_told_so(name, text):
    with pytest.raises(CostError, match=text):
        find_cost(name)


def test_an_objective_is_no_cost():
    assert find_objective(f"{HERE}:critical_path") is samples.critical_path
    with pytest.raises(CostError, match=r"@fastplan[.]plan_objective"):
        find_objective(f"{HERE}:uvm_is_slower")


def test_the_command_takes_both(tmp_path, capsys):
    words = ("plan", str(written(tmp_path)), "--json")
    names = {"cost": f"{HERE}:uvm_is_slower", "objective": f"{HERE}:critical_path"}
    for option, name in names.items():
        assert main((*words, f"--{option}", name)) == 0
        assert json.loads(capsys.readouterr().out)["notes"][option] == name
    assert main((*words, "--cost", "nonsense")) == 1
    assert "--cost must be package.module:function" in capsys.readouterr().err
    assert main((*words, "--cost", f"{HERE}:not_a_number")) == 1
    told = capsys.readouterr().err
    assert "not_a_number set `bwd_comms` to nan" in told and "table t1" in told


def test_better_plans_take_a_cost_and_no_objective(tmp_path, capsys):
    words = ("plan", str(written(tmp_path)), "--json", "--optimize", "--move-budget", "100")
    assert main((*words, "--cost", f"{HERE}:uvm_is_slower")) == 0
    assert json.loads(capsys.readouterr().out)["notes"]["cost"].endswith("uvm_is_slower")
    assert main((*words, "--objective", f"{HERE}:critical_path")) == 1
    assert "critical_path rates plans otherwise: leave out the objective" in capsys.readouterr().err


def test_an_export_names_the_functions():
    from fastplan import EmbeddingShardingPlanner, export_spec
    from tests.parity.compare import quiet
    from tests.parity.small import small

    built = small(shard_cost=samples.uvm_is_slower, objective=samples.critical_path)
    planner = EmbeddingShardingPlanner(**built.planner_kwargs)
    with quiet():
        spec = export_spec(planner, built.module, built.sharders)
    assert (spec.shard_cost, spec.objective) == (f"{HERE}:uvm_is_slower", f"{HERE}:critical_path")
