"""A record's options are found in the request again, or the record is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.layout import narrowed, shard_ranks
from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate, solve
from fastplan.model.plan import NO_LOAD_FACTOR, BadRecord, PlanRecord
from fastplan.model.vocabulary import SHARDING_TYPE_INDEX
from tests.plans.samples import SEEDS, cluster_of, random_request
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table

ASKED = request([table(f"t{i}", 9_000 * (i + 3), 64) for i in range(5)], 8, 4, ALL_TYPES)


def record_of(asked, cluster, search):
    space = estimate(asked)
    found = solve(Problem(space, cluster), search)
    return PlanRecord.of(space, found.options, found.ranks, found.rating)


RECORD = record_of(ASKED, cluster_of(8, 4), DEFAULT_SEARCH)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_table_has_just_the_option_that_was_chosen(seed):
    asked, cluster, search = random_request(seed)
    record = record_of(asked, cluster, search)
    found = narrowed(asked, record)
    assert [each.name for each in found.tables] == [asked.tables[i].name for i in record.table]
    space = estimate(found)
    assert (np.diff(space.table_option_begin) == 1).all()
    assert np.array_equal(space.option_type, record.sharding_type)
    assert np.array_equal(space.option_kernel, record.kernel)


@pytest.mark.parametrize("factor", [0.5, 1.0, NO_LOAD_FACTOR])
@pytest.mark.parametrize("where", [0, 4])
def test_a_record_with_a_resized_cache_is_refused(factor, where):
    factors = RECORD.load_factor.copy()
    factors[where] = factor
    with pytest.raises(BadRecord, match="resized caches"):
        narrowed(ASKED, replace(RECORD, load_factor=factors))


def test_an_option_that_the_request_does_not_have_is_refused():
    dense = request(list(ASKED.tables), 8, 4, ("data_parallel",))
    with pytest.raises(BadRecord, match=r"table t\d does not allow"):
        narrowed(dense, RECORD)
    with pytest.raises(BadRecord, match="it has 5 tables, the model 4"):
        narrowed(replace(ASKED, tables=ASKED.tables[:4]), RECORD)


def placed(kinds, ranks):
    """A record of tables of these sharding types."""
    count = len(kinds)
    return PlanRecord(
        table=np.arange(count, dtype=np.int32),
        sharding_type=np.array([SHARDING_TYPE_INDEX[kind] for kind in kinds], np.uint8),
        kernel=np.zeros(count, np.uint8),
        load_factor=np.full(count, np.nan),
        ranks=np.array(ranks, np.int32),
        rating=1.0,
    )


def test_uniform_shards_are_on_all_ranks_in_turn_and_others_where_they_are_recorded():
    record = placed(["column_wise", "row_wise", "table_wise"], [3, 1, 2])
    found = shard_ranks(record, np.array([2, 4, 1]), 4)
    assert found.tolist() == [3, 1, 0, 1, 2, 3, 2]


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([4], "on rank 4 of 4"),
        ([-1], "on rank -1 of 4"),
        ([], "0 ranks for 1 shards"),
        ([1, 2], "2 ranks for 1 shards"),
    ],
)
def test_ranks_outside_the_cluster_and_too_few_or_many_are_refused(ranks, why):
    assert shard_ranks(placed(["table_wise"], [3]), np.array([1]), 4).tolist() == [3]
    with pytest.raises(BadRecord, match=why):
        shard_ranks(placed(["table_wise"], ranks), np.array([1]), 4)
