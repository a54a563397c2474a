"""Layouts estimated anew."""

import numpy as np
import pytest

from fastplan.measure.rerate import reestimate
from fastplan.report.analysis import analyse
from fastplan.report.estimates import EstimateUnavailable, estimates
from fastplan.spec.lower import lower
from fastplan.spec.model import replace
from tests.measure.samples import KINDS, planned, spec


def faster(given, **figures):
    hardware = replace(given.topology.hardware, **figures)
    return replace(given, topology=replace(given.topology, hardware=hardware))


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_with_the_same_constants_a_plan_keeps_its_rating(kind):
    given = spec()
    plan = planned(given, kind)
    again = reestimate(replace(plan, basis=None), lower(given))
    assert again.basis.record.rating == pytest.approx(plan.basis.record.rating, rel=1e-12)
    for part, values in estimates(plan.basis).rank_parts.items():
        assert np.allclose(estimates(again.basis).rank_parts[part], values)


def test_other_constants_change_the_parts_they_belong_to():
    given = spec()
    plan = planned(given, "table_wise")
    hardware = given.topology.hardware
    job = lower(faster(given, intra_host_bw=hardware.intra_host_bw / 2))
    before, after = (analyse(each).costs.parts for each in (plan, reestimate(plan, job)))
    assert np.allclose(after["fwd_comms"], 2 * before["fwd_comms"])
    assert np.allclose(after["fwd_compute"], before["fwd_compute"])


def test_a_layout_of_another_model_is_refused():
    given = spec()
    plan = planned(given)
    other = replace(given, tables=given.tables[1:])
    with pytest.raises(EstimateUnavailable, match="t0"):
        reestimate(plan, lower(other))
    with pytest.raises(EstimateUnavailable, match="3 tables"):
        reestimate(planned(other), lower(given))


def test_a_type_that_the_model_may_not_have_is_refused():
    given = spec()
    plan = planned(given, "row_wise")
    tables = tuple(replace(table, sharding_types=("table_wise",)) for table in given.tables)
    with pytest.raises(EstimateUnavailable, match="row_wise"):
        reestimate(plan, lower(replace(given, tables=tables)))
