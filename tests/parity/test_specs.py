"""Specs exported from real modules plan to TorchRec's plan, under the planner's fingerprint."""

import pytest
from torchrec.distributed.planner.types import PlannerError, PlannerErrorType

from fastplan import load_plan
from fastplan.cache.plan_cache import Cache
from fastplan.cache.stores import MemoryStore
from fastplan.files.document import parse_document
from fastplan.model.job import CannotPlan
from fastplan.planning.plan import plan
from fastplan.plans.file import write_plan
from fastplan.spec.lower import lower
from fastplan.spec.read import spec_of
from fastplan.spec.write import spec_text
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.export_tables import ExportError

from .compare import plan_record
from .instances import FAMILIES, Instance, make_instance
from .subject import SELF_CHECK, FastPlanner

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec knows no specs")

# A spec has no words for a proposer that listens, nor for options that none is left of.
_BEYOND = ("is a custom proposer", "proposer runs in Python", "has no allowed sharding option")
INSTANCES = [make_instance(seed) for seed in range(4 * len(FAMILIES))]


@pytest.mark.parametrize("instance", INSTANCES, ids=str)
def test_spec_and_module_give_one_plan_and_one_fingerprint(instance: Instance, tmp_path) -> None:
    built = instance.build()
    try:
        spec = export_spec(FastPlanner(**built.planner_kwargs), built.module, built.sharders)
    except ExportError as error:
        assert any(reason in str(error) for reason in _BEYOND)
        return
    except PlannerError as error:
        assert "negative available hbm" in str(error) or "leaving no hbm" in str(error)
        return
    text = spec_text(spec, "yaml" if instance.seed % 2 else "json")
    read = spec_of(parse_document(text.encode(), "model"))
    planned = plan(lower(read))

    built = instance.build()
    planner = FastPlanner(**built.planner_kwargs, cache=Cache(MemoryStore()))
    try:
        expected = planner.plan(built.module, built.sharders)
    except PlannerError as error:
        if error.error_type is PlannerErrorType.MISSING_MODULE_IN_PLAN:
            pytest.skip("the plan lacks a module")
        expected = None
    assert planner.last_run.cache.fingerprint == planned.key.fingerprint
    if expected is None:
        assert planned.record is None
        with pytest.raises(CannotPlan, match="nothing fits"):
            planned.plan()
        return
    assert planned.rating.hex() == planner.last_run.rating.hex()
    file = tmp_path / "plan.json"
    write_plan(planned.plan(), file)
    # Tables of another device group are not planned, which a module check takes for missing.
    module = None if instance.family == "groups" else built.module
    found = load_plan(file, module, sharders=built.sharders)
    assert plan_record(found) == plan_record(expected)


def test_a_job_finds_the_plan_that_was_made_from_its_spec() -> None:
    found = 0
    for instance in INSTANCES[:40]:
        built = instance.build()
        try:
            spec = export_spec(FastPlanner(**built.planner_kwargs), built.module, built.sharders)
        except (ExportError, PlannerError):
            continue
        cache = Cache(MemoryStore())
        planned = plan(lower(spec), cache=cache)
        if planned.record is None or built.planner_kwargs.get("plan_loader"):
            continue
        assert (planned.cache.status, plan(lower(spec), cache=cache).cache.status) == (
            "miss",
            "hit",
        )
        built = instance.build()
        planner = FastPlanner(**built.planner_kwargs, cache=cache)
        planner.plan(built.module, built.sharders)
        assert planner.last_run.cache.status == "hit", (str(instance), planner.last_run.cache)
        found += 1
    assert found > 25
