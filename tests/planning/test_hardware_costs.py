"""Plans with hardware costs, from specs: requests, keys, files, cache, compare."""

import math
from dataclasses import replace

import pytest

from fastplan.cache.fingerprint import parse_canonical
from fastplan.engine.optimize import Optimize
from fastplan.model.hardware_costs import CONSTANTS
from fastplan.model.job import CannotPlan
from fastplan.model.objectives import ConstraintError, Objectives
from fastplan.planning.specs import plan_spec
from fastplan.plans.file import read_plan, write_plan
from fastplan.report.analysis import analyse
from fastplan.report.comparison import compare
from fastplan.report.html import html_report
from fastplan.spec.hardware import HardwareError
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, TableSpec
from fastplan.spec.read import on_cluster, read_spec
from fastplan.spec.write import write_spec
from tests.report.pages import Page

MOVES = Optimize(time_budget=None, move_budget=2000)


def spec(costs="hardware", sku="h100", ranks=8, **fields):
    tables = tuple(
        TableSpec(
            name=f"t{i}",
            rows=10 ** (3 + i % 5),
            dim=(32, 64, 128)[i % 3],
            pooling=(1.0 + 7 * (i % 4),),
            optimizer=("sgd", "adam", "lamb", "rowwise_adagrad")[i % 4],
        )
        for i in range(12)
    )
    model = ModelSpec(name="m", tables=tables, batch_size=1024, costs=costs, **fields)
    return on_cluster(model, sku=sku, world_size=ranks)


def test_costs_are_torchrecs_unless_asked_for():
    assert lower(spec("torchrec")).request.hardware is None
    assert plan_spec(spec("torchrec")).step is None


def test_optimizer_states_are_those_of_the_optimizer():
    states = lower(spec()).request.hardware.states
    assert states[:4] == (0.0, 2.0, 2.0, 1 / 32)


def test_the_canonical_request_has_the_costs_and_gives_them_back():
    result = plan_spec(spec())
    request, _ = parse_canonical(result.key.request)
    assert request.hardware == result.job.request.hardware
    other = plan_spec(spec(pipeline="train_sparse_dist"))
    keys = {each.key.fingerprint for each in (result, other, plan_spec(spec("torchrec")))}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("constants", [1.0], "hardware.constants"),
        ("states", [0.0], "hardware.states"),
        ("states", [-1.0] * 12, "hardware.states[0]"),
        ("domain_ranks", 0, "hardware.domain_ranks"),
        ("pipeline", "other", "hardware.pipeline"),
        ("constants", ["inf"] * len(CONSTANTS), "hardware.constants[0]"),
    ],
)
def test_bad_costs_of_a_request_are_named(field, value, place):
    import json

    document = json.loads(plan_spec(spec()).key.request)
    document["hardware"][field] = value
    with pytest.raises(ValueError, match=rf"^{place.replace('[', chr(92) + '[')}"):
        parse_canonical(json.dumps(document).encode())


def test_a_cached_plan_has_the_same_step(tmp_path):
    first, second = (plan_spec(spec(), cache=tmp_path, optimize=MOVES) for _ in range(2))
    assert (first.cache.status, second.cache.status) == ("miss", "hit")
    assert second.step == first.step


def test_a_plan_file_has_the_step(tmp_path):
    result = plan_spec(spec(), optimize=MOVES)
    write_plan(result.plan(), tmp_path / "plan.json")
    found = analyse(read_plan(tmp_path / "plan.json"))
    assert found.step == result.step
    assert found.plan.notes["costs"] == "hardware"
    stock = lower(spec("torchrec")).request
    again = replace(result.job.request, hardware=None)
    assert again == stock
    assert math.isfinite(found.torchrec_rating)
    assert found.torchrec_rating != found.rating


def test_optimize_minimises_the_step_unless_another_measure_is_asked_for():
    by_step = plan_spec(spec(), optimize=MOVES)
    rated = Optimize(time_budget=None, move_budget=2000, objectives=Objectives(minimize="rating"))
    by_rating = plan_spec(spec(), optimize=rated)
    assert by_step.optimized.objective == pytest.approx(by_step.step.ms)
    assert by_step.step.ms <= by_rating.step.ms
    assert by_step.step.ms <= plan_spec(spec()).step.ms
    assert by_rating.optimized.objective is None
    assert by_rating.rating <= by_step.rating


def test_the_step_is_at_most_that_of_torchrecs_own_plan():
    result = plan_spec(spec(), optimize=MOVES)
    stock = plan_spec(spec("torchrec"))
    _, rated = (each.step.ms for each in compare([result.plan(), stock.plan()]).analyses)
    assert result.step.ms <= rated * (1 + 1e-9)


def test_the_step_needs_hardware_costs():
    settings = Optimize(objectives=Objectives(minimize="step"))
    with pytest.raises(ConstraintError, match="hardware costs"):
        plan_spec(spec("torchrec"), optimize=settings)


def test_a_pipeline_hides_phases():
    plain, hidden = plan_spec(spec()), plan_spec(spec(pipeline="train_sparse_dist"))
    assert [phase.name for phase in hidden.step.phases if phase.hidden] == ["input_exchange"]
    exchange = next(phase.ms for phase in plain.step.phases if phase.name == "input_exchange")
    assert hidden.step.ms == pytest.approx(plain.step.ms - exchange)


def test_a_step_says_what_its_constants_rest_on():
    constants = plan_spec(spec(sku="a100-80")).step.constants
    assert constants["hbm_forward.efficiency"].sku == "h100"
    assert constants["hbm_forward.efficiency"].source


def test_plans_with_different_costs_are_compared_by_the_same_costs():
    stock, other = plan_spec(spec("torchrec")), plan_spec(spec())
    found = compare([stock.plan(), other.plan()])
    assert "same hardware costs" in found.yardstick
    assert all(analysis.step is not None for analysis in found.analyses)
    assert found.analyses[1].step == other.step
    assert found.steps[0].settings.words == ("other costs",)
    assert not compare([other.plan(), other.plan()]).yardstick


@pytest.mark.parametrize("order", [1, -1])
def test_a_page_compares_plans_with_different_costs(order):
    plans = [plan_spec(spec(costs)).plan() for costs in ("torchrec", "hardware")][::order]
    comparison = compare(plans)
    page = Page(html_report(plans, comparison))
    assert comparison.yardstick in page.text_of("p")
    for plan in page.data["plans"]:
        assert plan["tiles"][0]["title"] == "Predicted step"
    with pytest.raises(ValueError, match="must be of these plans"):
        html_report(plans[::-1], comparison)


def test_a_sku_without_constants_is_named():
    with pytest.raises(HardwareError, match=r"torchrec has no `hbm_forward.latency`"):
        plan_spec(spec(sku="torchrec"))


def test_a_kernel_without_figures_is_named():
    model = spec()
    table = replace_table(model.tables[0], compute_kernels=("key_value",))
    with pytest.raises(CannotPlan, match=r"t0.*key_value"):
        plan_spec(replace(model, tables=(table, *model.tables[1:])))


def replace_table(table, **fields):
    import msgspec

    return msgspec.structs.replace(table, **fields)


def test_a_spec_file_keeps_costs_pipeline_and_sku(tmp_path):
    model = spec(pipeline="train_sparse_dist")
    write_spec(model, tmp_path / "m.yaml")
    found = read_spec(tmp_path / "m.yaml")
    assert (found.costs, found.pipeline) == ("hardware", "train_sparse_dist")
    assert lower(found).request == lower(model).request
    slow = replace(model.topology.hardware, inter_host_bw=1e6)
    topology = replace_table(model.topology, hardware=slow)
    write_spec(replace(model, topology=topology), tmp_path / "slow.yaml")
    again = lower(read_spec(tmp_path / "slow.yaml")).request
    assert again == lower(replace(model, topology=topology)).request
    assert again.hardware != lower(model).request.hardware
