"""Plans of one model on one cluster are compared; others are refused."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.model.plan import RANK
from fastplan.model.request import Partitioner, Search
from fastplan.report.comparison import NotComparable, TablePlacement, compare, short_names
from tests.problems import ALL_TYPES, DEFAULT_PROPOSERS, GIB, request, table
from tests.report.samples import (
    bare,
    cluster_of,
    criteo,
    criteo_row_wise,
    criteo_table_wise,
    plan_of,
    small,
)


def small_request(**changes):
    tables = [table(f"t{i}", 10_000 * (i + 1), 64, pooling=2.0 + i) for i in range(6)]
    tables[3] = tables[3]._replace(**changes)
    return request(tables, 8, 4, ALL_TYPES)


CLUSTER = cluster_of(8, 4, GIB, 8 * GIB)


def with_tables(plan, change):
    tables = tuple(filter(None, map(change, plan.layout.tables)))
    return replace(plan, layout=replace(plan.layout, tables=tables))


def test_a_plan_is_the_same_as_itself():
    comparison = compare([small(), small()])
    assert comparison.same
    assert comparison.steps[0].counts["unchanged"] == 6
    assert comparison.steps[0].changes == ()


def test_counts_and_changes_cover_every_table():
    step = compare([criteo(), criteo_table_wise()]).steps[0]
    assert step.counts["re-sharded"] + step.counts["moved"] == len(step.changes) == 25
    assert sum(step.counts.values()) == 26
    sizes = [change.bytes for change in step.changes]
    assert sizes == sorted(sizes, reverse=True)


def test_a_change_says_what_stays_once():
    changes = compare([criteo(), criteo_table_wise()]).steps[0].changes
    words = {change.table: change.words for change in changes}
    assert words["sparse.t_cat_9"] == "table_wise fused r1 -> r3"
    assert words["sparse.t_cat_0"] == "row_wise fused all ranks -> table_wise fused r2"


def test_added_and_removed_tables_have_one_side():
    fewer = with_tables(bare(small()), lambda made: made if made.name != "t2" else None)
    step = compare([bare(small()), fewer], force=True).steps[0]
    assert [(change.kind, change.after) for change in step.changes] == [("removed", None)]
    step = compare([fewer, bare(small())], force=True).steps[0]
    assert [(change.kind, change.before) for change in step.changes] == [("added", None)]
    assert step.changes[0].words == "table_row_wise fused r0-3"


def test_the_order_of_shards_counts():
    def swapped(made):
        shards = made.shards.copy()
        shards[[0, 1], RANK] = shards[[1, 0], RANK]
        return made._replace(shards=shards)

    step = compare([bare(small()), with_tables(bare(small()), swapped)]).steps[0]
    assert step.changes[0].before == TablePlacement("table_row_wise", "fused", "r0-3")
    assert step.changes[0].after == TablePlacement("table_row_wise", "fused", "r1,0,2,3")


def test_plans_with_equal_placements_and_other_settings_differ():
    tuned = with_tables(
        small(), lambda made: made._replace(settings={"cache_params": {"load_factor": 0.1}})
    )
    comparison = compare([small(), tuned])
    assert not comparison.same
    assert len(comparison.steps[0].tuned) == 6
    assert comparison.steps[0].changes == ()


def test_how_a_file_writes_ranks_is_no_difference():
    written = with_tables(small(), lambda made: made._replace(settings={"ranks": None}))
    assert compare([small(), written]).same


def test_every_plan_is_compared_with_the_first():
    comparison = compare([criteo(), criteo_table_wise(), criteo()])
    assert [len(step.changes) for step in comparison.steps] == [25, 0]
    assert not comparison.same


def test_plans_with_equal_names_get_numbers():
    assert compare([small(), small()]).labels == ("dlrm #1", "dlrm #2")
    assert compare([small(), criteo()], force=True).labels == ("dlrm", "dlrm-criteo")


def test_labels_must_be_one_per_plan():
    with pytest.raises(ValueError, match="`labels` must be one per plan"):
        compare([small(), small()], labels=["a"])


def test_one_plan_is_no_comparison():
    with pytest.raises(ValueError, match="`plans` must be at least two"):
        compare([small()])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rows": 41_000, "bytes": 41_000 * 256}, "table sparse.t3: rows 40,000 -> 41,000"),
        ({"perf_inputs": 1.0}, "table sparse.t3: ids per step [0-9,]+ -> 1"),
        ({"name": "other"}, "table sparse.t3 is missing"),
        ({"element_size": 2}, "bytes per element 4 -> 2"),
        ({"name": "a\nb.options"}, r"different models or clusters"),
    ],
)
def test_another_model_is_refused_with_what_differs(changes, complaint):
    other = plan_of(small_request(**changes), CLUSTER)
    with pytest.raises(NotComparable, match=complaint) as refusal:
        compare([small(), other])
    assert "\n" not in str(refusal.value)
    assert compare([small(), other], force=True).steps[0].differences.fields


@pytest.mark.parametrize(
    ("cluster", "complaint"),
    [
        (cluster_of(16, 4, GIB, 8 * GIB), "ranks: 8 -> 16"),
        (cluster_of(8, 8, GIB, 8 * GIB), "ranks per host: 4 -> 8"),
        (cluster_of(8, 4, 2 * GIB, 8 * GIB), "HBM of rank 0 for tables: 1.0 GiB -> 2.0 GiB"),
    ],
)
def test_another_cluster_is_refused_with_what_differs(cluster, complaint):
    asked = small_request()
    if len(cluster.rank_hbm) != 8:
        asked = request(list(asked.tables), 16, 4, ALL_TYPES)
    with pytest.raises(NotComparable, match=complaint):
        compare([small(), plan_of(asked, cluster)])


def test_a_little_less_memory_is_the_same_cluster():
    less = plan_of(small_request(), cluster_of(8, 4, GIB - (1 << 20), 8 * GIB))
    assert compare([small(), less]).steps[0].differences.fields == ()


def test_memory_that_a_reservation_takes_is_a_setting():
    less = plan_of(
        small_request(),
        cluster_of(8, 4, GIB // 2, 8 * GIB),
        context={"reservation": {"percentage": 0.5}},
    )
    step = compare([small(), less]).steps[0]
    assert step.differences.fields == ()
    assert "rank_hbm[0]: 1073741824 -> 536870912" in step.settings.fields
    assert step.settings.words == (
        "reserved share of memory: 15.0 % -> 50.0 %",
        "HBM of rank 0 for tables: 1.0 GiB -> 512.0 MiB",
    )


def test_a_different_search_is_reported_but_not_refused():
    search = Search(proposers=DEFAULT_PROPOSERS, partitioner=Partitioner(sort_by_perf=True))
    step = compare([small(), plan_of(small_request(), CLUSTER, search=search)]).steps[0]
    assert step.differences.fields == ()
    assert step.settings.fields == ("search.partitioner.sort_by_perf: false -> true",)
    assert step.settings.words == ("partitioner: sort by perf: no -> yes",)


def test_other_options_are_reported_in_one_line():
    step = compare([criteo(), criteo_row_wise()]).steps[0]
    assert step.settings.words == step.settings.fields == ("other options for 24 tables",)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda made: made._replace(shape=(7, 7)), r"table sparse.t0 has shape \(7, 7\)"),
        (lambda made: made if made.name != "t1" else None, "table sparse.t1 is missing"),
        (lambda made: made._replace(name=made.name + "x"), "table sparse.t0 is missing"),
    ],
)
def test_bare_layouts_are_compared_by_tables_and_shapes(change, complaint):
    with pytest.raises(NotComparable, match=complaint):
        compare([bare(small()), with_tables(bare(small()), change)])


def test_bare_layouts_of_unknown_shape_are_compared():
    assert compare([criteo(), bare(criteo())]).same


def test_bare_layouts_differ_by_ranks_where_those_are_known():
    wide = plan_of(request(list(small_request().tables), 16, 4, ("row_wise",)), cluster_of(16, 4))
    narrow = plan_of(request(list(small_request().tables), 8, 4, ("row_wise",)), cluster_of(8, 4))
    with pytest.raises(NotComparable, match="there are 16 ranks, not 8"):
        compare([bare(narrow), bare(wide)])


def test_bare_layouts_differ_by_hosts():
    plan = bare(small())
    other = replace(plan, layout=replace(plan.layout, ranks_per_host=8))
    with pytest.raises(NotComparable, match="hosts have 8 ranks, not 4"):
        compare([plan, other])


def test_clusters_of_different_size_can_be_forced():
    wide = plan_of(request(list(small_request().tables), 16, 4, ALL_TYPES), cluster_of(16, 4))
    step = compare([small(), wide], force=True).steps[0]
    assert len(step.movement.rank_received) == 16
    assert np.asarray(step.movement.rank_received).sum() == step.movement.bytes


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/runs/plans/8.json", "/runs/plans/16.json"], ["8.json", "16.json"]),
        (["/runs/1/plan.json", "/runs/2/plan.json"], ["1/plan.json", "2/plan.json"]),
        (["plan.json", "old/plan.json"], ["plan.json", "old/plan.json"]),
        (["/a/plan.json", "/a/plan.json"], ["plan.json #1", "plan.json #2"]),
        (["/a/b.json", "/a/b.json/c.json"], ["b.json", "b.json/c.json"]),
    ],
)
def test_names_of_plans_are_as_short_as_they_can_be_told_apart(paths, names):
    assert short_names(paths) == names
