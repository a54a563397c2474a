"""The space of a stored plan's options, whichever way it is made."""

from dataclasses import fields, replace

import numpy as np
import pytest

from fastplan.engine.problem import SearchSpace
from fastplan.model.plan import AS_REQUESTED, BadRecord, PlanRecord
from fastplan.model.vocabulary import KERNEL_INDEX, KERNELS, SHARDING_TYPES
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.space import Choice, recorded_space
from tests.torchrec import poison


@pytest.fixture
def space():
    return drafted(poison.planner(False), poison.model(), poison.SHARDERS)


@pytest.fixture
def record(space):
    """Every other option, tables backwards."""
    begin = space.columns.table_option_begin[::-1]
    sizes = np.diff(space.columns.table_option_begin)[::-1]
    options = begin[1:] + np.arange(len(sizes)) % sizes
    return PlanRecord.of(space.columns, options, [], 1.0)


def choices(space, record):
    rows = zip(record.table, record.sharding_type, record.kernel, strict=True)
    for table, kind, kernel in rows:
        rule = space.origins[table].constraint
        cache = rule.cache_params if rule is not None else None
        yield Choice(int(table), SHARDING_TYPES[kind], KERNELS[kernel], cache)


def test_a_record_without_cache_sizes_has_the_costs_of_its_options(space, record):
    assert np.isnan([AS_REQUESTED, *record.load_factor]).all()
    found = recorded_space(space, record, resizes=False)
    expected = space.narrowed(choices(space, record))
    for field in fields(SearchSpace):
        one, other = (getattr(each.columns, field.name) for each in (found, expected))
        assert np.array_equal(one, other), field.name
    assert found.origins == expected.origins


def test_an_option_that_is_not_allowed_is_named(space, record):
    kernels = record.kernel.copy()
    kernels[3] = KERNEL_INDEX["dense"]
    wrong = replace(record, kernel=kernels)
    with pytest.raises(BadRecord, match=r"table t36 no longer allows \(\w+, dense\)"):
        recorded_space(space, wrong, resizes=False)
