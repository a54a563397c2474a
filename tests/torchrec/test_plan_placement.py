"""The rule that a plan's placements follow is found from the plan alone."""

import pytest

pytest.importorskip("torchrec")

from fastplan.torchrec.plan_json import PlacementRule, Placements, infer_rule, table_shape

from .plans import one_table, spec


@pytest.mark.parametrize(
    ("placements", "expected"),
    [
        (["rank:0/cuda:0"], PlacementRule("cuda", None)),
        (["rank:0/cuda:0", "rank:6/cuda:6"], PlacementRule("cuda", None)),
        (["rank:0/cuda:0", "rank:9/cuda:1"], PlacementRule("cuda", 8)),
        (["rank:17/cuda:1", "rank:25/cuda:1"], PlacementRule("cuda", 8)),
        (["rank:8/cuda:0", "rank:9/cuda:1", "rank:10/cuda:7"], PlacementRule("cuda", 8)),
        (["rank:0/cpu", "rank:9/cpu"], PlacementRule("cpu", None)),
        (["rank:0/cpu", "rank:1/cuda:1", "rank:2/cuda:2"], PlacementRule("cuda", None)),
        (["cpu", "trainer0/cpu", None], None),
    ],
)
def test_the_largest_hosts_that_explain_most_placements_are_taken(
    placements: list[str | None], expected: PlacementRule | None
) -> None:
    shards = [([i, 0], [1, 4], text) for i, text in enumerate(placements)]
    assert infer_rule(one_table(sharding_spec=spec(*shards))) == expected


def test_a_rank_has_one_placement() -> None:
    placements = Placements(PlacementRule("cuda", 8))
    assert str(placements.placement(11)) == "rank:11/cuda:3"
    assert placements.placement(11) is placements.placement(11)


def test_the_shape_of_a_table_is_that_of_its_shards_together() -> None:
    placements = Placements(PlacementRule("cpu", None))
    assert table_shape(placements.blocks([5, 4, 0], [2, 3], list(range(6)))) == (9, 5)
    assert table_shape(None) is None
