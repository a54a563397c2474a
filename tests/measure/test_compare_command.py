"""`fastplan compare --measured`."""

import json

import pytest

from fastplan.cli.main import main
from fastplan.plans.file import write_plan
from tests.measure.samples import model, planned, spec, write_runs

KINDS = ("table_wise", "row_wise", "data_parallel")
FILES = tuple(f"{kind}.json" for kind in KINDS)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three plans, and measurements in the order of their estimates."""
    monkeypatch.chdir(tmp_path)
    plans = {f"{kind}.json": planned(spec(), kind) for kind in KINDS}
    for name, plan in plans.items():
        write_plan(plan, tmp_path / name)
    seconds = {name: plan.basis.record.rating for name, plan in plans.items()}
    write_runs(tmp_path / "runs", plans, seconds)
    return tmp_path


def compared(capsys, *words):
    code = main(("compare", *words))
    return code, *capsys.readouterr()


def test_it_shows_both_and_how_they_agree(folder, capsys):
    code, out, _ = compared(capsys, *FILES, "--measured", "runs")
    assert code == 2  # the plans differ
    assert "estimated and measured on 2 cpu ranks (test CPU), batch 32" in out
    assert "order: Kendall's tau 1.00 (1.00 to 1.00)" in out
    assert "3 of 3 that differ by more than noise have the right estimated order" in out


def test_json_has_the_agreement(folder, capsys):
    found = json.loads(compared(capsys, *FILES, "--measured", "runs", "--json")[1])
    assert found["agreement"]["tau"]["value"] == 1
    assert {plan["label"] for plan in found["agreement"]["plans"]} == set(FILES)


def test_the_page_has_the_picture_and_the_findings(folder, capsys):
    compared(capsys, *FILES, "--measured", "runs", "--html", "plans.html")
    page = (folder / "plans.html").read_text()
    assert page.count("<circle") == len(FILES)
    assert "Kendall&#39;s tau 1.00" in page


def test_a_folder_without_measurements_is_one_line(folder, capsys):
    code, _, err = compared(capsys, *FILES, "--measured", "nowhere")
    assert code not in (0, 2)
    assert err.count("\n") == 1
    assert "nowhere" in err


def test_plans_that_were_not_measured_are_said_not_to_be(folder, capsys):
    write_plan(planned(spec(), "column_wise"), folder / "other.json")
    _, out, _ = compared(capsys, "other.json", FILES[0], "--measured", "runs")
    assert "order: too few plans have an estimate" in out


def test_plans_are_estimated_anew_for_other_hardware(folder, capsys):
    (folder / "model.json").write_text(json.dumps(model()))
    words = (*FILES, "--model", "model.json", "--sku", "h100", "--json")
    found = json.loads(compared(capsys, *words)[1])
    before = json.loads(compared(capsys, *FILES, "--json")[1])
    for new, old in zip(found["plans"], before["plans"], strict=True):
        assert new["label"] == old["label"]
        assert 0 < new["rating"] < old["rating"]


def test_a_model_without_a_cluster_is_rated_on_the_ranks_of_the_plans(folder, capsys):
    (folder / "model.json").write_text(json.dumps(model()))
    told = model()
    del told["topology"]["world_size"]
    (folder / "bare.json").write_text(json.dumps(told))
    ratings = []
    for name in ("model.json", "bare.json"):
        words = (*FILES, "--model", name, "--sku", "h100", "--json")
        found = json.loads(compared(capsys, *words)[1])
        ratings.append([plan["rating"] for plan in found["plans"]])
    assert ratings[0] == ratings[1]


@pytest.mark.parametrize(
    ("topology", "words", "problem"),
    [
        (
            {"world_size": 4},
            ("--sku", "h100"),
            "2 ranks, and model.json has 4 as `topology.world_size`",
        ),
        (
            {"world_size": 2, "local_world_size": 1},
            (),
            "2 ranks per host, and model.json has 1 as `topology.local_world_size`",
        ),
    ],
)
def test_a_model_on_other_ranks_than_the_plans_is_refused(folder, capsys, topology, words, problem):
    told = {**model(), "topology": {**model()["topology"], **topology}}
    (folder / "model.json").write_text(json.dumps(told))
    code, out, err = compared(capsys, *FILES, "--model", "model.json", *words)
    assert (code, out) == (1, "")
    assert f"table_wise.json is a plan for {problem}: remove that field" in err


def test_a_plan_of_another_model_is_named(folder, capsys):
    (folder / "model.json").write_text(json.dumps(model(tables=3)))
    code, _, err = compared(capsys, *FILES, "--model", "model.json")
    assert code not in (0, 2)
    assert "table_wise.json is not a plan for model.json: table t3 is not in the model" in err


def test_hardware_alone_estimates_nothing(folder, capsys):
    assert "--sku needs --model" in compared(capsys, *FILES, "--sku", "h100")[2]
