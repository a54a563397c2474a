"""The files that fastplan's reporter writes for TorchRec's planner API."""

import json
from importlib.util import find_spec

import pytest

import fastplan
from fastplan.plans.file import read_plan

if find_spec("torchrec.distributed.planner.reporter") is None:
    pytest.skip("this TorchRec has no planner API", allow_module_level=True)

from torchrec.distributed.planner.dry_run import DryRunOrchestrator
from torchrec.distributed.planner.executor import DefaultPlannerExecutor
from torchrec.distributed.planner.stats import EmbeddingStats

from tests.torchrec.test_planner_api import SMALL, context, dry_run


def planned(reporter, executor=None, **more):
    """The result and the context of a dry run."""
    asked = dry_run(**more)
    ctx = context(asked)
    executor = executor or fastplan.PlannerExecutor()
    return DryRunOrchestrator(executor, reporter).plan(asked, ctx)["H100"], ctx


def test_a_plan_is_written_as_plan_file_text_and_page(tmp_path):
    result, ctx = planned(fastplan.PlanReporter(tmp_path / "new" / "plans"))
    written = {path.name: path.read_text() for path in (tmp_path / "new" / "plans").iterdir()}
    assert set(written) == {"H100.json", "H100.txt", "H100.html"}
    path = tmp_path / "new" / "plans" / "H100.json"
    assert result.sharding_plan_manifold_url == str(path)
    assert fastplan.load_plan(path) == result.sharding_plan
    assert "rating " in written["H100.txt"]
    assert "t4" in written["H100.txt"]
    assert written["H100.html"].startswith("<!")
    assert f"{result.estimated_qps!r}" in written["H100.html"]
    assert (ctx.warnings, ctx.plan_persist_failures) == ([], {})


def test_the_plan_file_has_the_request_and_the_estimates(tmp_path):
    result, _ = planned(fastplan.PlanReporter(tmp_path, formats=["json"], console=False))
    plan = read_plan(tmp_path / "H100.json")
    assert plan.basis is not None
    assert float(plan.notes["critical_path_ms"]) == result.critical_path_ms
    assert float(plan.notes["estimated_qps"]) == result.estimated_qps
    assert plan.notes["request_hash"] == result.request_hash
    assert (plan.notes["sku"], plan.notes["engine"]) == ("H100", "native")
    assert [path.name for path in tmp_path.iterdir()] == ["H100.json"]


def test_the_plan_of_torchrecs_planner_is_written_without_its_request(tmp_path):
    result, _ = planned(fastplan.PlanReporter(tmp_path), DefaultPlannerExecutor())
    assert fastplan.load_plan(tmp_path / "H100.json") == result.sharding_plan
    notes = json.loads((tmp_path / "H100.json").read_text())["notes"]
    assert notes["no_basis"] == "the planner was not built by fastplan.PlannerProvider"
    assert (tmp_path / "H100.html").exists()


def test_a_failed_plan_is_not_written(tmp_path):
    result, ctx = planned(fastplan.PlanReporter(tmp_path), **SMALL)
    assert not result.success
    assert result.sharding_plan_manifold_url is None
    assert list(tmp_path.iterdir()) == []
    assert ctx.plan_persist_failures == {}


def test_a_file_that_can_not_be_written_is_recorded_and_the_plan_is_returned(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    result, ctx = planned(fastplan.PlanReporter(tmp_path / "file"))
    assert result.success
    assert result.sharding_plan_manifold_url is None
    assert list(ctx.plan_persist_failures) == ["plan_report:H100"]
    assert "the plan for H100 is not reported" in caplog.text


def test_each_sku_has_fresh_statistics_and_its_own_files_inside_the_directory(tmp_path):
    reporter = fastplan.PlanReporter(tmp_path)
    ctx = context(dry_run())
    first, second = reporter.build_stats(ctx, "../A B"), reporter.build_stats(ctx, "..%2FA B")
    assert [type(each) for each in first] == [type(each) for each in second]
    assert isinstance(first[0], EmbeddingStats)
    assert first[0] is not second[0]
    names = [set(stats[1]._paths.values()) for stats in (first, second)]
    assert not names[0] & names[1]
    assert {path.rpartition("/")[0] for path in names[0] | names[1]} == {str(tmp_path)}
    [only] = fastplan.PlanReporter(tmp_path, console=False).build_stats(ctx, "A")
    assert not isinstance(only, EmbeddingStats)


@pytest.mark.parametrize("formats", [["pdf"], [], "json"])
def test_other_formats_are_an_error(formats, tmp_path):
    with pytest.raises(ValueError, match="`formats` must be some of json, txt, html"):
        fastplan.PlanReporter(tmp_path, formats=formats)
