"""What is measured and by whom."""

import pytest

from fastplan.measure.settings import (
    LaunchSettings,
    MeasureError,
    Settings,
    Turn,
    WorkerConfig,
    turns,
)


def test_every_plan_has_a_turn_in_every_round():
    found = turns(3, 4)
    assert len(found) == len(set(found)) == 12
    for number in range(4):
        assert {turn.plan for turn in found if turn.round == number} == {0, 1, 2}


def test_the_order_of_a_round_is_drawn_from_the_seed():
    orders = {tuple(turn.plan for turn in turns(3, 9)[3 * i : 3 * i + 3]) for i in range(9)}
    assert len(orders) > 3
    assert turns(3, 9, seed=1) == turns(3, 9, seed=1) != turns(3, 9)


@pytest.mark.parametrize(
    ("field", "value"),
    [("rounds", 0), ("steps", 0), ("warmup", -1), ("zipf", -0.1), ("zipf", float("nan")),
     ("lengths", "odd"), ("seed", -1), ("batches", 0), ("part_rounds", 0)],
)  # fmt: skip
def test_settings_name_the_field_that_is_wrong(field, value):
    with pytest.raises(MeasureError, match=f"`{field}`|`warmup` and `seed`"):
        Settings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("device", "tpu"), ("ranks_per_host", 0), ("hosts", 0), ("threads", 0), ("timeout", 0)],
)
def test_groups_name_the_field_that_is_wrong(field, value):
    with pytest.raises(MeasureError, match=f"`{field}`"):
        LaunchSettings(**{"device": "cpu", "ranks_per_host": 2, field: value})


def test_an_assignment_is_read_as_it_was_written(tmp_path):
    given = WorkerConfig(
        task="measure",
        device="cpu",
        timeout=3.5,
        settings={"rounds": 2},
        target="a.b:c",
        labels=("p.json", "q\n.json"),
        turns=(Turn(0, 1), Turn(1, 0)),
    )
    given.write(tmp_path)
    assert WorkerConfig.read(tmp_path) == given
