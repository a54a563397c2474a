"""Tables cut down to what the devices hold."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.measure.scaling import (
    MemoryLimit,
    free_host_memory,
    host_memory,
    rank_bytes,
    scaled_layout,
    scaled_rows,
    scaled_spec,
    smallest_factor,
)
from fastplan.measure.settings import LaunchSettings, MeasureError
from fastplan.model.plan import RANK, ROW, ROWS
from tests.measure.samples import KINDS, planned, spec

GROUP = LaunchSettings(device="cpu", ranks_per_host=2)


def large(ranks=2, rows=1_000_001):
    tables = [{"name": "t", "rows": rows, "dim": 64, "optimizer": "rowwise_adagrad"}]
    return spec(ranks, tables=tables)


@pytest.mark.parametrize(
    ("rows", "factor", "left"),
    [(10_000_000, 10, 1_000_000), (10_001, 10, 1001), (5000, 10, 1000), (300, 10, 300), (7, 1, 7)],
)
def test_rows_are_divided_but_small_tables_stay(rows, factor, left):
    assert scaled_rows(rows, factor) == left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_scaled_layout_is_the_one_of_the_scaled_model(kind, ranks):
    given = large(ranks)
    scaled = scaled_spec(given, 8)
    found = scaled_layout(planned(given, kind).layout, scaled, ranks)
    expected = planned(scaled, kind).layout
    assert found.tables[0].shape == expected.tables[0].shape == (125_001, 64)
    order = np.argsort(expected.tables[0].shards[:, RANK], kind="stable")
    own = np.argsort(found.tables[0].shards[:, RANK], kind="stable")
    assert np.array_equal(found.tables[0].shards[own], expected.tables[0].shards[order])


def test_a_layout_that_is_not_scaled_stays_as_it_is():
    given = large()
    layout = planned(given, "row_wise").layout
    assert scaled_layout(layout, given, 2).tables[0] is layout.tables[0]


def test_rows_that_are_cut_unevenly_are_refused():
    given = large(rows=10_000)
    layout = planned(given, "row_wise").layout
    table = layout.tables[0]
    shards = table.shards.copy()
    shards[:, ROWS] = [7000, 3000]
    shards[:, ROW] = [0, 7000]
    uneven = replace(layout, tables=(table._replace(shards=shards),))
    with pytest.raises(MeasureError, match=r"table t: .*unevenly"):
        scaled_layout(uneven, scaled_spec(given, 2), 2)


def test_bytes_count_states_and_gradients_of_copies():
    given = large(rows=1000)
    weights = 1000 * 64 * 4
    tables, hosts = rank_bytes(planned(given, "table_wise").layout, given, 2)
    assert sorted(tables) == [0, weights + 1000 * 4]
    assert hosts == [0, 0]
    copies, _ = rank_bytes(planned(given, "data_parallel").layout, given, 2)
    assert copies == [2 * weights + 1000 * 4] * 2


def test_unified_memory_is_the_hosts():
    given = large(rows=1000)
    layout = planned(given, "table_wise").layout
    tables = (layout.tables[0]._replace(kernel="fused_uvm"),)
    device, host = rank_bytes(replace(layout, tables=tables), given, 2)
    assert sum(device) == 0
    assert sum(host) == 1000 * 65 * 4


def test_what_does_not_fit_is_named():
    given = large()
    layout = planned(given, "table_wise").layout
    assert MemoryLimit(10**12, None).shortage(layout, given, GROUP) is None
    assert "the ranks of a host need" in MemoryLimit(10**8, None).shortage(layout, given, GROUP)
    cuda = LaunchSettings(device="cuda", ranks_per_host=2)
    assert "of device memory" in MemoryLimit(10**12, 10**8).shortage(layout, given, cuda)


def test_the_smallest_factor_that_fits_is_found():
    given = large()
    layouts = [planned(given, kind).layout for kind in KINDS]
    assert smallest_factor(layouts, given, GROUP, MemoryLimit(10**12, None)) == 1
    room = MemoryLimit(500_000_000, None)
    factor = smallest_factor(layouts, given, GROUP, room)
    assert factor == 4
    for layout in layouts:
        for number, fits in ((factor, True), (factor // 2, layout is not layouts[-1])):
            scaled = scaled_spec(given, number)
            shortage = room.shortage(scaled_layout(layout, scaled, 2), scaled, GROUP)
            assert (shortage is None) == fits


def test_no_factor_makes_room_where_there_is_none():
    given = large()
    with pytest.raises(MeasureError, match="don't fit with any --scale-rows"):
        smallest_factor([planned(given).layout], given, GROUP, MemoryLimit(1000, None))


def test_the_host_has_memory():
    assert 0 < free_host_memory() <= host_memory()
