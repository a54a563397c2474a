"""The self-check names the part that differs; each part of TorchRec is changed in this process."""

import pytest
from torchrec.distributed.planner import partitioners, perf_models, proposers, shard_estimators

from fastplan.torchrec.support import support
from fastplan.torchrec.support.proof import prove
from fastplan.torchrec.support.watch import ESTIMATES, PARTITIONERS, PLANNER, RATING

KNOWN = dict(support.decide().reasons)
pytestmark = pytest.mark.skipif(bool(KNOWN), reason="the estimates are not native")


@pytest.fixture(autouse=True)
def unnoticed(monkeypatch):
    """Keeps fastplan from noticing replaced functions, as if the source had them."""
    monkeypatch.setattr(support._watch, "replaced", dict)


def test_a_stock_torchrec_agrees():
    reasons, plans = prove()
    assert (reasons, plans) == ({}, 15)


def test_other_storage_makes_estimates_fall_back(monkeypatch):
    stock = shard_estimators._calculate_tensor_sizes
    monkeypatch.setattr(
        shard_estimators,
        "_calculate_tensor_sizes",
        lambda *args, **kwargs: [3 * size for size in stock(*args, **kwargs)],
    )
    reasons, _ = prove()
    assert set(reasons) == {ESTIMATES}
    assert "Storage(" in reasons[ESTIMATES]


def test_another_rating_falls_back(monkeypatch):
    stock = perf_models.NoopPerfModel.rate
    monkeypatch.setattr(perf_models.NoopPerfModel, "rate", lambda self, plan: -stock(self, plan))
    reasons, _ = prove()
    assert set(reasons) == {RATING}


def test_a_proposer_falls_back_alone(monkeypatch):
    stock = proposers.UniformProposer.propose
    monkeypatch.setattr(
        proposers.UniformProposer,
        "propose",
        lambda self: None if self._proposal_index else stock(self),
    )
    reasons, _ = prove()
    assert "UniformProposer" in reasons
    assert PLANNER not in reasons
    assert "GridSearchProposer" not in reasons


def test_another_placement_falls_back(monkeypatch):
    stock = partitioners._group_and_sort_non_uniform_sharding_options
    monkeypatch.setattr(
        partitioners,
        "_group_and_sort_non_uniform_sharding_options",
        lambda *args, **kwargs: stock(*args, **kwargs)[::-1],
    )
    reasons, _ = prove()
    assert reasons
    assert {PARTITIONERS, PLANNER} & set(reasons)


def test_models_that_torchrec_refuses_are_compared_too(monkeypatch):
    def refuse(self, *args, **kwargs):
        raise ValueError("of this test")

    monkeypatch.setattr(shard_estimators.EmbeddingStorageEstimator, "estimate", refuse)
    reasons, plans = prove()
    assert ESTIMATES in reasons
    assert plans == 15


def test_a_torchrec_without_the_parts_of_the_cases_is_not_native(monkeypatch):
    for name in ("FixedPercentageStorageReservation",):
        monkeypatch.delattr(f"torchrec.distributed.planner.storage_reservations.{name}")
    reasons, plans = prove()
    assert plans == 0
    assert "could compare only 0 plans" in reasons[PLANNER]
