"""Checks before anything runs, and the folder that is made."""

import json

import numpy as np
import pytest

from fastplan.measure.prepare import Subject, layout_key, prepare
from fastplan.measure.scaling import MemoryLimit
from fastplan.measure.settings import MODEL, RUN, LaunchSettings, MeasureError, Settings, plan_file
from fastplan.model.plan import RANK
from fastplan.plans.file import read_plan
from fastplan.spec.model import replace
from fastplan.spec.read import read_spec
from tests.measure.samples import KINDS, on_one_rank, planned, spec

ROOMY = MemoryLimit(10**15, None)
CPU = LaunchSettings(device="cpu", ranks_per_host=2)


def prepared(folder, given, plans, group=CPU, scale=1, room=ROOMY, target=None, **settings):
    labels = tuple(f"plan{i}" for i in range(len(plans)))
    subject = Subject(given, target, tuple(plans), labels)
    return prepare(folder, subject, group, Settings(**settings), scale=scale, room=room)


def refused(tmp_path, given, plans, **more):
    with pytest.raises(MeasureError) as error:
        prepared(tmp_path / "runs", given, plans, **more)
    assert not (tmp_path / "runs").exists()
    return str(error.value)


def test_the_folder_has_the_model_and_the_plans(tmp_path):
    given = spec()
    plans = [planned(given, kind) for kind in KINDS]
    assert prepared(tmp_path, given, plans) == 1
    written = read_spec(tmp_path / MODEL)
    assert written.tables == given.tables
    for number, plan in enumerate(plans):
        assert layout_key(read_plan(plan_file(tmp_path, number)).layout) == layout_key(plan.layout)
    told = json.loads((tmp_path / RUN).read_text())
    assert [entry["label"] for entry in told["plans"]] == ["plan0", "plan1", "plan2", "plan3"]
    assert told["plans"][0]["rating"] == plans[0].basis.record.rating
    assert told["scale_rows"] == 1


def test_the_planner_s_memory_is_noted_for_tables_as_they_are_measured(tmp_path):
    given = spec(tables=[{"name": "t", "rows": 1_000_000, "dim": 64}])
    plan = planned(given, "table_wise")
    noted = []
    for factor in (1, 10):
        prepared(tmp_path / str(factor), given, [plan], scale=factor)
        told = json.loads((tmp_path / str(factor) / RUN).read_text())
        noted.append(max(told["plans"][0]["memory"]))
    assert noted[0] >= 256_000_000 > 30_000_000 > noted[1] >= 25_600_000


def test_plans_of_other_devices_are_placed_on_those_at_hand(tmp_path):
    given = spec(topology={"sku": "h100", "world_size": 2})
    plan = planned(given, "table_wise")
    assert plan.layout.device == "cuda"
    prepared(tmp_path, given, [plan])
    assert read_plan(plan_file(tmp_path, 0)).layout.device == "cpu"


def test_rows_are_scaled_as_asked_or_as_needed(tmp_path):
    given = spec(tables=[{"name": "t", "rows": 1_000_000, "dim": 64}])
    plans = [planned(given, kind) for kind in KINDS]
    assert prepared(tmp_path / "a", given, plans, scale=5) == 5
    assert read_spec(tmp_path / "a" / MODEL).tables[0].rows == 200_000
    assert prepared(tmp_path / "b", given, plans, scale=None, room=MemoryLimit(10**9, None)) == 2
    assert prepared(tmp_path / "c", given, plans, scale=None) == 1


def test_what_does_not_fit_is_refused_with_the_way_out(tmp_path):
    given = spec(tables=[{"name": "t", "rows": 1_000_000, "dim": 64}])
    text = refused(tmp_path, given, [planned(given)], room=MemoryLimit(10**6, None))
    assert text.startswith("plan0: the ranks of a host need")
    assert "--scale-rows auto" in text


def test_real_models_are_not_scaled(tmp_path):
    given = spec(tables=[{"name": "t", "rows": 1_000_000, "dim": 64}])
    assert "fastplan export" in refused(tmp_path, given, [planned(given)], scale=2, target="a:b")


def test_a_folder_with_results_is_kept(tmp_path):
    given = spec()
    prepared(tmp_path, given, [planned(given)])
    with pytest.raises(MeasureError, match="another folder"):
        prepared(tmp_path, given, [planned(given)])


def test_a_plan_for_other_ranks_is_refused(tmp_path):
    given = spec(ranks=4)
    assert "plan0 is a plan for 4 ranks, not for 2" in refused(tmp_path, given, [planned(given)])


def test_a_bare_layout_may_leave_ranks_empty(tmp_path):
    given = spec()
    prepared(tmp_path, given, [on_one_rank(planned(given, "table_wise"))])
    written = read_plan(plan_file(tmp_path, 0)).layout
    assert all(set(table.shards[:, RANK]) == {0} for table in written.tables)


def test_tables_that_one_side_lacks_are_named(tmp_path):
    given = spec()
    fewer = replace(given, tables=given.tables[1:])
    assert "t0 of module sparse.ebc is not in the plan" in refused(
        tmp_path, given, [planned(fewer)]
    )
    assert "t0 of module sparse.ebc is not in the model" in refused(
        tmp_path, fewer, [planned(given)]
    )


def test_tables_of_another_shape_are_named(tmp_path):
    given = spec()
    other = replace(given, tables=(replace(given.tables[0], rows=9), *given.tables[1:]))
    text = refused(tmp_path, given, [planned(other, "table_wise")])
    assert "table t0 is (9, 64), but (500, 64) in the model" in text


def test_kernels_that_the_device_lacks_are_named(tmp_path):
    given = spec(topology={"sku": "h100", "world_size": 2})
    plan = planned(given, "table_wise")
    tables = (plan.layout.tables[0]._replace(kernel="fused_uvm"), *plan.layout.tables[1:])
    uvm = replace(plan, layout=replace(plan.layout, tables=tables), basis=None)
    assert "kernel fused_uvm, which can't be measured on cpu" in refused(tmp_path, given, [uvm])
    cuda = LaunchSettings(device="cuda", ranks_per_host=2)
    prepared(tmp_path / "cuda", given, [uvm], group=cuda, room=MemoryLimit(10**15, 10**15))


def test_copies_of_sequence_tables_are_refused_on_cpus(tmp_path):
    given = spec(modules={"sparse.ebc": {"kind": "embedding_collection"}})
    text = refused(tmp_path, given, [planned(given, "data_parallel")])
    assert "table t0 is data_parallel and not pooled" in text


def test_hosts_of_another_size_are_refused_where_types_depend_on_them(tmp_path):
    given = spec(topology={"sku": "h100", "world_size": 4, "local_world_size": 4})
    plan = planned(given, "table_wise")
    tables = tuple(
        table._replace(sharding_type="table_column_wise") for table in plan.layout.tables
    )
    by_host = replace(plan, layout=replace(plan.layout, tables=tables), basis=None)
    group = LaunchSettings(device="cpu", ranks_per_host=2, hosts=2)
    assert "hosts of 4 ranks, but these hosts have 2" in refused(
        tmp_path, given, [by_host], group=group
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"dtype": "int8"}, "int8 can't be trained"), ({"optimizer": "adam"}, "no Adam on CPUs")],
)
def test_tables_that_cannot_be_built_are_named(tmp_path, fields, words):
    given = spec()
    other = replace(given, tables=(replace(given.tables[0], **fields), *given.tables[1:]))
    text = refused(tmp_path, other, [planned(given)])
    assert text.startswith("table t0: ")
    assert words in text


def test_modules_that_cannot_be_built_are_named_with_the_way_out(tmp_path):
    given = spec()
    modules = {"sparse.ebc": replace(given.modules["sparse.ebc"], kind="embedding_tower")}
    text = refused(tmp_path, replace(given, modules=modules), [planned(given)])
    assert "module sparse.ebc: a embedding_tower" in text
    assert "package.module:function" in text


def test_batches_that_cannot_be_drawn_are_no_problem_with_a_dataset(tmp_path):
    given = spec()
    tables = (replace(given.tables[0], poolings=(2.0,)), *given.tables[1:])
    odd = replace(given, tables=tables)
    plan = planned(given)
    assert "--dataset" in refused(tmp_path, odd, [plan])
    prepared(tmp_path / "own", odd, [plan], dataset="json:loads")


def test_layouts_are_told_apart_by_what_they_say_and_not_by_order():
    given = spec()
    plan = planned(given, "table_wise")
    key = layout_key(plan.layout)
    turned = replace(plan.layout, tables=plan.layout.tables[::-1])
    assert layout_key(turned) == key
    assert layout_key(on_one_rank(plan).layout) != key
    kernel = plan.layout.tables[0]._replace(kernel="fused_uvm")
    other = replace(plan.layout, tables=(kernel, *plan.layout.tables[1:]))
    assert layout_key(other) != key


def test_copies_have_the_same_key_whether_their_shape_is_known_or_not():
    layout = planned(spec(), "data_parallel").layout
    bare = tuple(
        table._replace(shape=None, shards=table.shards * np.array([1, 1, 0, 0, 1]))
        for table in layout.tables
    )
    assert layout_key(replace(layout, tables=bare)) == layout_key(layout)
