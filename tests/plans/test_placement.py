"""Placements are read and written as TorchRec does, and their rule is found."""

from __future__ import annotations

from collections import Counter

import pytest

from fastplan.plans.checks import (
    BadValue,
    Device,
    PlacementRule,
    infer_rule,
    read_placement,
    read_rule,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank:9/cuda:1", Device(9, "cuda", 1)),
        ("rank:9/cpu", Device(9, "cpu", 0)),
        ("rank:9", Device(9, "cpu", 0)),
        ("trainer0/cuda:1", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_a_placement_names_a_rank_or_none(text, expected):
    assert read_placement(text, "here") == expected


@pytest.mark.parametrize(
    "text",
    ["rank:", "rank:x/cpu", "rank:-1/cpu", "rank:1/", "rank:1/cuda:x", "rank:1/a/b", "rank:²"],
)
def test_a_rank_that_is_none_is_refused(text):
    with pytest.raises(BadValue, match="must be a placement such as rank:0/cuda:0"):
        read_placement(text, "here")


@pytest.mark.parametrize(
    ("rule", "rank", "expected"),
    [
        (PlacementRule("cuda", 8), 9, "rank:9/cuda:1"),
        (PlacementRule("cuda", None), 9, "rank:9/cuda:9"),
        (PlacementRule("mtia", 4), 9, "rank:9/mtia:1"),
        (PlacementRule("cpu", 8), 9, "rank:9/cpu"),
    ],
)
def test_a_rule_tells_where_a_rank_is(rule, rank, expected):
    assert rule.text(rank) == expected


@pytest.mark.parametrize("rule", [("cuda", 8), ("cuda", 2), ("cpu", None), ("mtia", 4)])
def test_the_rule_of_placements_is_found_again(rule):
    rule = PlacementRule(*rule)
    seen = Counter(read_placement(rule.text(rank), "") for rank in range(20))
    assert infer_rule(seen) == rule
    assert infer_rule({}) is None


@pytest.mark.parametrize(
    ("device", "host", "place"),
    [
        ("cuda:1", 8, "device"),
        ("", 8, "device"),
        (3, 8, "device"),
        ("\x1b[31m", 8, "device"),
        ("cuda", 0, "ranks_per_host"),
        ("cuda", True, "ranks_per_host"),
        (None, "8", "ranks_per_host"),
    ],
)
def test_a_header_without_a_rule_is_refused(device, host, place):
    with pytest.raises(BadValue) as caught:
        read_rule(device, host)
    assert caught.value.place == place


def test_a_header_may_have_no_rule():
    assert read_rule(None, None) is None
    assert read_rule("cuda", None) == PlacementRule("cuda", None)
