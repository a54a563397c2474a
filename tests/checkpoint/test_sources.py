"""Which entries of a checkpoint are a table's, and what they cover."""

import pytest
import torch

from fastplan.checkpoint.errors import CheckpointError
from fastplan.checkpoint.metadata import Chunk, Entry
from fastplan.checkpoint.sources import (
    Region,
    StateIndex,
    find_entry,
    nesting_of,
    read_table,
    stacked_offsets,
)
from tests.checkpoint.samples import KEY

K0 = KEY.format(0)
ROWS, COLUMNS = 6, 8


def entry(key, size, *cuts):
    """A tensor with chunks at these offsets and sizes; whole without any."""
    cuts = cuts or (((0,) * len(size), size),)
    chunks = tuple(Chunk(offsets, sizes, "file", 0, 1, False) for offsets, sizes in cuts)
    return Entry(key, (key,), torch.float32, size, chunks)


def table(*states, weight=None):
    weight = weight or entry(f"model.{K0}", (ROWS, COLUMNS))
    entries = {each.key: each for each in (weight, *states)}
    return read_table(entries, StateIndex(entries, [K0]), K0)


def test_states_of_fused_and_of_torchs_optimizers_are_found():
    found = table(
        entry(f"optim.state.{K0}.t0.momentum1", (ROWS, COLUMNS)),
        entry(f"optim.state.{K0}.t0.exp_avg_sq", (ROWS, COLUMNS)),
        entry(f"optim.state.{K0}.iter", (1,)),
    )
    assert found.states.keys() == {"momentum1", "exp_avg_sq", "step"}
    # The first state of a fused optimizer is called momentum1.
    assert found.state("exp_avg") is found.states["momentum1"]
    assert found.state("exp_avg_sq") is found.states["exp_avg_sq"]
    assert found.state("max_exp_avg_sq") is None


def test_a_prefix_of_a_combined_optimizer_does_not_hide_a_state():
    found = table(entry(f"optim.state.dense.{K0}.exp_avg", (ROWS, COLUMNS)))
    assert found.state("exp_avg").prefix == "optim.state.dense"


def test_a_table_whose_key_ends_another_key_has_its_own_states():
    longer = f"inner.{K0}"
    entries = {
        each.key: each
        for each in (
            entry(K0, (ROWS, COLUMNS)),
            entry(f"s.{K0}.sum", (ROWS,)),
            entry(f"s.{longer}.exp_avg", (ROWS,)),
        )
    }
    index = StateIndex(entries, [K0, longer])
    assert index.states(K0).keys() == {"sum"}
    assert index.states(longer).keys() == {"exp_avg"}


def test_a_weight_with_the_name_of_a_nesting_takes_no_states_of_others():
    names = [f"optimizer.state.{K0}.sum", "optimizer.state.scale.step", "optimizer.state.state.sum"]
    index = StateIndex({name: entry(name, (ROWS,)) for name in names}, [K0, "scale", "state"])
    assert index.states(K0).keys() == {"sum"}
    assert index.states("scale").keys() == {"step"}
    assert index.states("state").keys() == {"sum"}


def test_weights_are_no_states_of_a_weight_with_the_name_of_their_module():
    names = ["model.gate", "model.net.gate.weight", "optimizer.state.gate.exp_avg"]
    entries = {name: entry(name, (ROWS,)) for name in names}
    assert nesting_of(entries, ["gate", "net.gate.weight"]) == "model"
    assert StateIndex(entries, ["gate"], set(names[:2])).states("gate").keys() == {"exp_avg"}


def test_a_nesting_has_all_keys_of_the_job():
    longer = f"inner.{K0}"
    names = [f"model.{K0}", f"model.{longer}", f"ema.{K0}", "scale"]
    entries = {name: entry(name, (ROWS, COLUMNS)) for name in names}
    assert nesting_of(entries, [K0, longer]) == "model"
    assert nesting_of(entries, ["scale"]) == ""
    assert nesting_of(entries, [K0]) is None  # in three parts
    assert nesting_of(entries, [K0, "scale"]) is None
    assert nesting_of(entries, []) is None


def test_row_wise_states_of_column_shards_follow_each_other():
    halves = [((0, 0), (ROWS, 4)), ((0, 4), (ROWS, 4))]
    found = table(
        entry(f"s.{K0}.t0.momentum1", (2 * ROWS,), ((0,), (ROWS,)), ((ROWS,), (ROWS,))),
        weight=entry(K0, (ROWS, COLUMNS), *halves),
    )
    regions = [piece.region for piece in found.states["momentum1"].pieces]
    assert regions == [Region(0, 0, ROWS, 4), Region(0, 4, ROWS, 4)]


def test_grids_are_stacked_by_columns_and_then_rows():
    grid = [Region(3, 0, 3, 4), Region(0, 0, 3, 4), Region(0, 4, 4, 4), Region(4, 4, 2, 4)]
    assert [stacked_offsets(grid)[each] for each in grid] == [3, 0, 6, 10]


def test_the_part_of_one_rank_is_no_state_of_a_table():
    with pytest.raises(CheckpointError, match=r"state sum has shape \(3, 8\).* dense kernel"):
        table(entry(f"s.{K0}.sum", (3, COLUMNS)))


def test_a_state_that_is_there_twice_is_refused():
    with pytest.raises(CheckpointError, match=r"state sum twice: a.*sum and b.*sum"):
        table(entry(f"a.{K0}.sum", (ROWS,)), entry(f"b.{K0}.sum", (ROWS,)))


def test_several_weights_need_a_choice():
    entries = {f"{name}.{K0}": entry(f"{name}.{K0}", (ROWS, COLUMNS)) for name in ("ema", "model")}
    with pytest.raises(CheckpointError, match=r"has it 2 times .* `--under`"):
        find_entry(entries, K0)
    assert find_entry(entries, K0, "ema").key == f"ema.{K0}"
