"""What differs from an older plan is compared by table and by rank."""

from dataclasses import replace

import pytest

from fastplan.planning.difference import PlanModelMismatch, difference
from fastplan.planning.held import rank_map
from tests.plans.samples import cluster_of, solved
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table


def tables_of(count):
    return [table(f"t{i}", 9_000 * (i + 3), 64, pooling=1.5 + i * 1.3) for i in range(count)]


def planned(tables=None, ranks=8):
    asked = request(tables or tables_of(6), ranks, 4, ALL_TYPES)
    return solved(asked, cluster_of(ranks, 4), DEFAULT_SEARCH)


def compared(tables, *, ranks=8, given=None, previous=None, cluster=None, types=ALL_TYPES):
    previous = previous or planned()
    numbers = rank_map(given, previous.ranks, ranks)
    asked = request(tables, ranks, 4, types)
    return difference(previous, asked, cluster or cluster_of(ranks, 4), numbers)


def test_nothing_differs_from_the_same_request():
    found = compared(tables_of(6))
    assert str(found) == "nothing differs"
    assert found.same_ranks
    assert not found.changed


def test_added_and_removed_tables_are_named():
    found = compared([*tables_of(6)[1:], table("new", 10, 64)])
    assert (found.added, found.removed, found.kept) == (("sparse.new",), ("sparse.t0",), 5)
    assert str(found) == "1 table added (sparse.new); 1 table removed (sparse.t0)"


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("resized", {"rows": 5}),
        ("resized", {"dim": 128}),
        ("resized", {"element_size": 2}),
        ("drifted", {"perf_inputs": 5.0}),
        ("drifted", {"miss_rate": 0.5}),
        ("constrained", {"min_partition": 32}),
    ],
)
def test_a_changed_field_is_named_with_both_values(group, change):
    tables = tables_of(6)
    (name, value), old = next(iter(change.items())), tables[2]
    tables[2] = old._replace(**change)
    found = compared(tables)
    (only,) = getattr(found, group)
    assert only[:2] == ("sparse.t2", name)
    assert only.new == value
    assert found.changed == {2}


def test_other_options_are_other_constraints():
    found = compared(tables_of(6), types=("table_wise",))
    assert len(found.constrained) == 6
    assert found.constrained[0].field == "options"


@pytest.mark.parametrize("what", ["a constant", "a bandwidth", "coefficients"])
def test_another_cost_model_is_named(what):
    asked = request(tables_of(6), 8, 4, ALL_TYPES)
    changed = {
        "a constant": {"cost": replace(asked.cost, bw_world_all_to_all=1.0)},
        "a bandwidth": {
            "menus": tuple(
                tuple(item._replace(bandwidth=item.bandwidth / 2) for item in menu)
                for menu in asked.menus
            )
        },
        "coefficients": {
            "coefficients": (asked.coefficients[0]._replace(fwd=(1.0, 2.0, 1.0, 0.0)),)
        },
    }
    found = difference(planned(), replace(asked, **changed[what]), cluster_of(8, 4), range(8))
    assert str(found) == "another cost model"


def test_lost_new_and_renumbered_ranks_are_told():
    assert compared(tables_of(6), ranks=4).lost_ranks == (4, 5, 6, 7)
    assert compared(tables_of(6), ranks=12).new_ranks == (8, 9, 10, 11)
    given = [None] * 4 + [0, 1, 2, 3]
    found = compared(tables_of(6), ranks=4, given=given)
    assert found.lost_ranks == (0, 1, 2, 3)
    assert found.renumbered == ((4, 0), (5, 1), (6, 2), (7, 3))
    assert not found.same_ranks


def test_other_memory_is_told_and_noise_is_not():
    cluster = cluster_of(8, 4)
    less = (cluster.rank_hbm[0] // 2, *cluster.rank_hbm[1:])
    assert compared(tables_of(6), cluster=replace(cluster, rank_hbm=less)).resized_ranks == (0,)
    noisy = tuple(each - 10**6 for each in cluster.rank_hbm)
    assert compared(tables_of(6), cluster=replace(cluster, rank_hbm=noisy)).resized_ranks == ()


def test_a_plan_of_another_model_is_refused_with_names():
    with pytest.raises(PlanModelMismatch, match=r"sparse\.t0.*sparse\.other"):
        compared([table("other", 10, 64)])


def test_a_bare_layout_tells_shapes_alone():
    tables = tables_of(6)
    tables[0] = tables[0]._replace(rows=7, perf_inputs=9.0)
    bare = replace(planned(tables_of(6)), basis=None)
    found = compared(tables, previous=bare)
    assert not found.compared
    assert not found.drifted


@pytest.mark.parametrize(
    ("given", "named"),
    [([0, 1], "8 old ones"), ([0, 0, *range(2, 8)], "ranks 0 and 1"), ([9, *range(1, 8)], "to 9")],
)
def test_a_wrong_rank_map_is_refused(given, named):
    with pytest.raises(ValueError, match=named):
        rank_map(given, 8, 8)
