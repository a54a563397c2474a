"""A TorchRec without the planner API: what is missing is named, and the planner works."""

import sys

import pytest

import fastplan
from tests.torchrec.test_caching import planned

NEEDS = {
    "PlannerExecutor": ("executor", ()),
    "PlannerProvider": ("provider", ()),
    "PlanReporter": ("reporter", ("plans",)),
}


@pytest.mark.parametrize("name", NEEDS)
def test_the_error_names_the_module_and_the_class_that_works(name, monkeypatch):
    module, arguments = NEEDS[name]
    module = f"torchrec.distributed.planner.{module}"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError) as error:
        getattr(fastplan, name)(*arguments)
    text = str(error.value)
    assert text.startswith(f"fastplan.{name} needs {module}, which TorchRec ")
    assert "fastplan.EmbeddingShardingPlanner, which works without it" in text
    assert error.value.name == module


def test_the_planner_plans_without_the_api(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrec.distributed.planner.provider", None)
    plan, _ = planned(False)
    assert plan.plan


def test_a_missing_dependency_of_the_api_is_its_own_error(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchrec.distributed.planner.provider", raising=False)
    monkeypatch.setitem(sys.modules, "torchrec.distributed.planner.provider", None)

    def missing(name):
        raise ModuleNotFoundError("No module named 'tensordict'", name="tensordict")

    monkeypatch.setattr("fastplan.torchrec.api.import_module", missing)
    with pytest.raises(ModuleNotFoundError, match="tensordict"):
        fastplan.PlannerProvider()
