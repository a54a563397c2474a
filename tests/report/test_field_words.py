"""Fields of a request in words."""

import pytest

from fastplan.cache.why_miss import Difference
from fastplan.model.request import CostModel, Proposer, Table
from fastplan.report.field_words import differences_in_words, field_words

MIB = 1 << 20


@pytest.mark.parametrize(
    ("field", "old", "new", "words"),
    [
        (
            *("cost.bw_world_all_gather", 9e8, 5e7),
            "bandwidth of all-gather among all ranks: 900 GB/s -> 50 GB/s",
        ),
        (
            *("cost.bw_group_reduce_scatter", 9e8, 6.5e7),
            "bandwidth of reduce-scatter within a host: 900 GB/s -> 65 GB/s",
        ),
        (
            *("cost.bw_across_all_to_all", 0.0, 5e7),
            "bandwidth of all-to-all across hosts: none -> 50 GB/s",
        ),
        (
            *("context.reservation.kjt_storage.hbm", 53791949, 60 * MIB),
            "reservation for inputs: 51.3 MiB -> 60.0 MiB",
        ),
        (
            *("context.reservation.dense_storage.ddr", 0, 1 << 30),
            "reservation for dense parameters in DDR: 0 B -> 1.0 GiB",
        ),
        (
            *("context.reservation.dense_storage", None, {"hbm": 1}),
            "reservation for dense parameters: no -> yes",
        ),
        (
            *("context.reservation.policy", "torchrec.x.Heuristical", "torchrec.x.Fixed"),
            "policy of the reservation: Heuristical -> Fixed",
        ),
        (
            *("context.replan", None, {"max_moved": 0.05}),
            "following a previous plan: no -> yes",
        ),
        ("context.optimize.seed", 0, 7, "optimizer: seed: 0 -> 7"),
        ("context.local_world_size", 8, 4, "ranks per host: 8 -> 4"),
        ("context.torchrec", "1.8.0", "1.9.0", "TorchRec: 1.8.0 -> 1.9.0"),
        ("ranks", 1024, 2048, "ranks: 1,024 -> 2,048"),
        ("search.timeout_seconds", 0.0, 5.0, "time limit of the search: none -> 5.0 s"),
        ("search.proposers", [1], [2], "proposers: others"),
        ("search.partitioner.sort_by_perf", False, True, "partitioner: sort by perf: no -> yes"),
        (
            *("tables[ebc.item].perf_inputs", 81920.0, 102400.0),
            "table ebc.item: ids per step 81,920 -> 102,400",
        ),
        ("tables[a[1].b].bytes", 1 << 30, 3 << 30, "table a[1].b: size 1.0 GiB -> 3.0 GiB"),
        ("tables[t].options", [], [1], "table t: other allowed placements"),
        ("tables[t]", "missing", "present", "table t is new"),
        ("tables[t]", "present", "missing", "table t is missing"),
        ("tables", "in one order", "in another order", "tables are in another order"),
        ("tables[t].tower", None, "x", "table t: tower none -> x"),
        ("rank_hbm[3]", 1 << 30, 1 << 31, "HBM of rank 3 for tables: 1.0 GiB -> 2.0 GiB"),
    ],
)
def test_a_field_is_told_in_words(field, old, new, words):
    assert field_words(Difference(field, old, new)) == words


def test_a_small_change_of_a_size_is_not_rounded_away():
    change = Difference("tables[t].bytes", 2**40, 2**40 + 4)
    assert field_words(change) == "table t: size 1,099,511,627,776 B -> 1,099,511,627,780 B"


def test_what_follows_from_another_change_is_left_out():
    changes = [
        Difference("tables[t].rows", 10, 20),
        Difference("tables[t].bytes", 40, 80),
        Difference("context.group_size", 8, 16),
        Difference("cost.perf_world_size", 8, 16),
        Difference("ranks", 8, 16),
    ]
    assert differences_in_words(changes) == [
        "ranks of a group of hosts: 8 -> 16",
        "ranks: 8 -> 16",
        "table t: rows 10 -> 20",
    ]
    assert differences_in_words(changes[1:2]) == ["table t: size 40 B -> 80 B"]
    assert differences_in_words(changes[3:4]) == ["cost model: perf world size: 8 -> 16"]


def test_tables_with_the_same_change_share_a_line_and_costs_are_last():
    changes = [
        Difference("cost.pipeline", "none", "train_sparse_dist"),
        *(Difference(f"tables[t{i}].element_size", 4, 2) for i in range(3)),
        *(Difference(f"tables[t{i}].rows", 4, i) for i in range(3)),
    ]
    assert differences_in_words(changes) == [
        "3 tables: bytes per element 4 -> 2",
        "3 tables: other rows",
        "pipeline: none -> train_sparse_dist",
    ]


@pytest.mark.parametrize("value", [None, 1, 0.5, "x\n\u202e", True, [1], {"a": 1}, "nan", 1e300])
def test_any_value_of_any_field_has_words_on_one_line(value):
    names = [f"cost.{name}" for name in CostModel.__slots__]
    names += [f"search.proposers.{name}" for name in Proposer.__slots__]
    names += [f"tables[x\n].{name}" for name in (*Table._fields, "options", "unknown")]
    names += ["context.reservation.percentage", "context.reservation.kjt_storage.hbm", "\n", ""]
    names += ["context.reservation.policy", "search.timeout_seconds", "rank_ddr[0]"]
    for name in names:
        for change in (Difference(name, value, 7), Difference(name, None, value)):
            words = field_words(change)
            assert words.isprintable()


def test_a_plan_that_follows_another_one_is_named_without_its_digest():
    previous = Difference("context.previous", None, "0b05fda2f1f01b4f")
    policy = Difference("context.replan", None, {"slack": 0.01})
    assert differences_in_words([previous, policy]) == ["following a previous plan: no -> yes"]
    other = Difference("context.previous", "8d" * 20, "0b05fda2f1f01b4f")
    assert differences_in_words([other]) == [f"the plan before: {'8d' * 20} -> 0b05fda2f1f01b4f"]
