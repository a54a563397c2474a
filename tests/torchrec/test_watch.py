"""Each way in which other code can change TorchRec's planner while a process runs."""

import pytest
from torchrec.distributed.planner import constants, enumerators, perf_models, types
from torchrec.modules import embedding_configs
from torchrec.modules.embedding_configs import DataType

from fastplan.torchrec.support.watch import Watch


def other(*args, **kwargs):
    return 3


@pytest.fixture(scope="module")
def watch():
    return Watch()


def test_nothing_is_found_before_a_change(watch):
    assert watch.replaced() == {}


@pytest.mark.parametrize(
    ("owner", "name", "value", "found"),
    [
        (perf_models.NoopPerfModel, "rate", other, {"rating": "NoopPerfModel.rate"}),
        (constants, "POOLING_FACTOR", 7.5, {"planner": "constants.POOLING_FACTOR"}),
        # A name that hides one of Python.
        (enumerators, "sorted", other, {"estimates": "enumerators.sorted"}),
    ],
)
def test_another_binding_is_found_and_its_end_too(watch, monkeypatch, owner, name, value, found):
    monkeypatch.setattr(owner, name, value, raising=False)
    assert watch.replaced() == found
    monkeypatch.undo()
    assert watch.replaced() == {}


def test_an_equal_constant_changes_nothing(watch, monkeypatch):
    equal = float(str(constants.POOLING_FACTOR))
    assert equal is not constants.POOLING_FACTOR
    monkeypatch.setattr(constants, "POOLING_FACTOR", equal)
    assert watch.replaced() == {}


@pytest.mark.parametrize(
    ("attribute", "value"), [("__code__", other.__code__), ("__defaults__", (5,))]
)
def test_other_code_or_defaults_of_a_function_are_found(watch, monkeypatch, attribute, value):
    monkeypatch.setattr(perf_models.NoopPerfModel.rate, attribute, value)
    assert watch.replaced() == {"rating": "NoopPerfModel.rate"}
    monkeypatch.undo()
    assert watch.replaced() == {}


def test_another_entry_of_a_container_is_found(watch, monkeypatch):
    monkeypatch.setitem(embedding_configs.DATA_TYPE_NUM_BITS, DataType.FP32, 64)
    assert watch.replaced()["planner"].endswith(".DATA_TYPE_NUM_BITS")
    monkeypatch.undo()
    assert watch.replaced() == {}


def test_a_method_added_to_hide_one_of_a_base_class_is_found(watch, monkeypatch):
    monkeypatch.setattr(types.Topology, "__eq__", other, raising=False)
    monkeypatch.setattr(perf_models.NoopPerfModel, "__hash__", other, raising=False)
    assert "NoopPerfModel.__hash__" in watch.replaced().values()
    monkeypatch.undo()
    assert watch.replaced() == {}
