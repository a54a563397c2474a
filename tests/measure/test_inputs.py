"""Batches that are drawn."""

import numpy as np
import pytest

from fastplan.measure.inputs import (
    Feature,
    ModuleInputs,
    feature_names,
    generate_batch,
    module_inputs,
)
from fastplan.measure.settings import MeasureError, Settings
from fastplan.spec.model import replace
from tests.measure.samples import spec


def one(mean=3.0, rows=1000, weighted=False):
    return ModuleInputs("m", (Feature("f", mean, rows),), weighted)


def test_the_same_seed_and_key_give_the_same_batch():
    first, second = (generate_batch(one(weighted=True), 50, Settings(), 1, 2) for _ in range(2))
    for a, b in zip(first[1:], second[1:], strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("other", [(0, 2), (1, 3)])
def test_other_keys_give_other_batches(other):
    first = generate_batch(one(), 50, Settings(), 1, 2)
    assert not np.array_equal(first.ids, generate_batch(one(), 50, Settings(), *other).ids)


@pytest.mark.parametrize("kind", ["fixed", "poisson"])
@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0, 7.5])
def test_lengths_have_the_mean(kind, mean):
    batch = generate_batch(one(mean), 20_000, Settings(lengths=kind), 0)
    assert batch.lengths.mean() == pytest.approx(mean, abs=0.1)
    assert batch.lengths.sum() == len(batch.ids)


def test_fixed_lengths_are_next_to_the_mean():
    assert set(generate_batch(one(2.4), 1000, Settings(), 0).lengths.tolist()) == {2, 3}


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 1.2, 3.0])
@pytest.mark.parametrize("rows", [1, 2, 7, 1000, 40_000_000, 2**40])
def test_ids_are_rows(skew, rows):
    ids = generate_batch(one(4, rows), 500, Settings(zipf=skew), 0).ids
    assert ids.min() >= 0
    assert ids.max() < rows


def test_a_larger_skew_repeats_more():
    distinct = [
        len(np.unique(generate_batch(one(10, 100_000), 1000, Settings(zipf=skew), 0).ids))
        for skew in (0.0, 0.8, 1.2, 2.0)
    ]
    assert distinct == sorted(distinct, reverse=True)
    assert distinct[0] > 20 * distinct[-1]


def test_frequent_ids_are_spread_over_the_rows():
    ids = generate_batch(one(10, 100_000), 2000, Settings(zipf=1.2), 0).ids
    _, counts = np.unique(ids, return_counts=True)
    frequent = np.unique(ids)[np.argsort(-counts)[:20]]
    assert len({int(row) // 25_000 for row in frequent}) == 4


def test_features_are_one_after_the_other():
    inputs = ModuleInputs("m", (Feature("a", 1.0, 10), Feature("b", 2.0, 1000)), False)
    batch = generate_batch(inputs, 100, Settings(), 0)
    assert batch.keys == ("a", "b")
    assert batch.lengths.tolist() == [1] * 100 + [2] * 100
    assert batch.ids[:100].max() < 10 <= batch.ids[100:].max()
    assert batch.weights is None


def test_weights_come_with_weighted_modules():
    batch = generate_batch(one(weighted=True), 100, Settings(), 0)
    assert batch.weights.dtype == np.float32
    assert len(batch.weights) == len(batch.ids)


def test_features_without_names_get_some():
    table = spec().tables[0]
    assert feature_names(table) == ("t0",)
    assert feature_names(replace(table, pooling=(1.0, 2.0))) == ("t0:0", "t0:1")
    assert feature_names(replace(table, features=("x", "y"))) == ("x", "y")


def test_a_feature_of_two_tables_stays_within_the_smaller_one():
    given = spec()
    tables = tuple(replace(table, features=("shared",)) for table in given.tables)
    (module,) = module_inputs(replace(given, tables=tables))
    assert module.features == (Feature("shared", 1.0, 500),)


def test_one_pooling_factor_stands_for_all_features():
    given = spec()
    tables = (replace(given.tables[0], features=("a", "b"), pooling=(3.0,)),)
    (module,) = module_inputs(replace(given, tables=tables))
    assert [feature.mean for feature in module.features] == [3.0, 3.0]


@pytest.mark.parametrize("fields", [{"batch_sizes": (16,)}, {"poolings": (2.0,)}])
def test_batches_that_cannot_be_drawn_name_the_table_and_the_way_out(fields):
    given = spec()
    tables = (replace(given.tables[0], **fields), *given.tables[1:])
    with pytest.raises(MeasureError, match=r"table t0: .*--dataset"):
        module_inputs(replace(given, tables=tables))


def test_a_module_is_weighted_as_a_whole():
    given = spec()
    tables = (replace(given.tables[0], weighted=True), *given.tables[1:])
    with pytest.raises(MeasureError, match=r"module sparse.ebc: .*separate module"):
        module_inputs(replace(given, tables=tables))
