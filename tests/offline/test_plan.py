"""Jobs planned without TorchRec: what is checked before a plan is returned or kept."""

from dataclasses import replace

import pytest

from fastplan.cache.plan_cache import PlanCache
from fastplan.cache.stores import MemoryStore
from fastplan.core.optimize import OptimizeSettings
from fastplan.offline import plan
from fastplan.offline.plan import plan_job
from fastplan.spec.job import CannotPlan
from fastplan.spec.lower import lower
from fastplan.spec.model import TopologySpec
from tests.offline.samples import hardware, model


@pytest.mark.parametrize("changes", [{"rating": 1e-9}, {"ranks": [99, 99]}], ids=str)
def test_an_optimized_plan_that_is_not_sound_is_neither_returned_nor_kept(changes, monkeypatch):
    found = plan.optimize
    monkeypatch.setattr(
        plan, "optimize", lambda *args, **more: replace(found(*args, **more), **changes)
    )
    job = lower(model(topology=TopologySpec(hardware=hardware(), world_size=4)))
    store = MemoryStore()
    settings = OptimizeSettings(time_budget=None, move_budget=1_000)
    with pytest.raises(CannotPlan, match="not sound"):
        plan_job(job, PlanCache(store), settings)
    assert list(store.entries()) == []
