"""The list of moves between two plans."""

from fastplan.planning.moves import list_moves
from tests.planning.test_movement import plan, table


def quarters(*ranks):
    return table("t", [(2 * i, 0, 2, 4, rank) for i, rank in enumerate(ranks)])


def whole(rank):
    return table("t", [(0, 0, 8, 4, rank)], kind="table_wise")


def moved(before, after):
    found = list_moves(plan(before), plan(after, whole_elsewhere()))
    return [(move.source, move.target, move.bytes) for move in found if move.table == "t"]


def whole_elsewhere():
    """Another table, which makes two ranks of the new cluster."""
    return table("other", [(0, 0, 8, 4, 1)], kind="table_wise")


def test_what_lost_ranks_held_is_one_move_from_storage():
    assert moved(quarters(0, 1, 2, 3), whole(0)) == [(None, 0, 64), (1, 0, 32)]


def test_equal_moves_from_storage_and_from_a_rank_have_an_order():
    assert moved(quarters(0, 0, 1, 2), whole(0)) == [(None, 0, 32), (1, 0, 32)]
