"""What ranks lack and who sends it, against a count of single cells and against `movement`."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from fastplan.model.cuts import Cut, block_shards, copy_shards
from fastplan.model.plan import Layout, Plan, TableLayout
from fastplan.planning.exchange import Piece, Tensor, find_pieces, plan_rounds, sent_bytes
from fastplan.planning.movement import movement

RANKS = 5
SHAPE = (12, 8)


def shards_of(drawn, kind):
    if kind == "copies":
        return copy_shards(SHAPE, range(RANKS))
    rows, columns = drawn.choice(
        [((1, 12), (1, 8)), ((4, 3), (1, 8)), ((1, 12), (2, 4)), ((3, 4), (4, 2)), ((5, 3), (1, 8))]
    )
    if rows[0] * rows[1] > SHAPE[0]:  # the last shards of a row-wise table are smaller or empty
        starts = [min(3 * at, SHAPE[0]) for at in range(6)]
        return np.array([[a, 0, b - a, 8, r] for r, (a, b) in enumerate(pairwise(starts))])
    cut = Cut((rows,), (columns,))
    return block_shards(cut, [drawn.randrange(RANKS) for _ in range(rows[0] * columns[0])])


def drawn_tensors(seed, count=3):
    drawn = random.Random(seed)
    kinds = ["copies", "blocks", "blocks"]
    return [
        Tensor(f"t{i}", *(shards_of(drawn, drawn.choice(kinds)) for _ in range(2)), 4)
        for i in range(count)
    ]


def cells(shard):
    row, column, rows, columns, rank = shard
    return [(rank, i, j) for i in range(row, row + rows) for j in range(column, column + columns)]


def as_plan(tensors, at):
    tables = []
    for tensor in tensors:
        shards = tensor[at]
        kind = "data_parallel" if (shards[:, 2:4] == SHAPE).all() and len(shards) > 1 else "x"
        tables.append(TableLayout("m", tensor.name, kind, "fused", SHAPE, shards, {}))
    return Plan(name="x", layout=Layout(tables=(*tables,), device="cpu", ranks_per_host=1))


@pytest.mark.parametrize("seed", range(60))
def test_each_cell_of_a_new_shard_comes_once_and_from_a_rank_that_has_it(seed):
    tensors = drawn_tensors(seed)
    pieces = find_pieces(tensors, RANKS)
    for number, tensor in enumerate(tensors):
        held = {cell for shard in tensor.held.tolist() for cell in cells(shard)}
        needed = Counter(cell for shard in tensor.needed.tolist() for cell in cells(shard))
        filled = Counter()
        for piece in (each for each in pieces if each.tensor == number):
            rectangle = (piece.row, piece.column, piece.rows, piece.columns)
            assert tensor.held[piece.held][4] == piece.source
            assert set(cells((*rectangle, piece.source))) <= held
            own = tensor.needed[piece.needed].tolist()
            assert set(cells((*rectangle, piece.target))) <= set(cells(own))
            filled.update(cells((*rectangle, piece.target)))
        assert filled == needed


@pytest.mark.parametrize("seed", range(60))
def test_sent_bytes_are_those_that_a_comparison_of_the_plans_counts(seed):
    tensors = drawn_tensors(seed)
    counted = movement(as_plan(tensors, 1), as_plan(tensors, 2))
    pieces = find_pieces(tensors, RANKS)
    assert sent_bytes(pieces, tensors) == counted.bytes
    received = Counter()
    for piece in pieces:
        received[piece.target] += (piece.source != piece.target) * piece.cells * 4
    assert [received[rank] for rank in range(RANKS)] == counted.rank_received[:RANKS].tolist()


def test_copies_send_equally_much():
    held = copy_shards((6, 4), [0, 1, 2])
    needed = block_shards(Cut(((6, 1),), ((1, 4),)), [3] * 6)
    tensor = Tensor("t", held, needed, 4)
    senders = Counter(piece.source for piece in find_pieces([tensor], 4))
    assert senders == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize(
    ("held", "what"), [([[0, 0, 5, 4, 0]], "in part"), ([[0, 0, 6, 4, 0], [3, 0, 3, 4, 1]], "once")]
)
def test_old_shards_that_do_not_make_a_table_are_named(held, what):
    tensor = Tensor("t7", np.array(held), np.array([[0, 0, 6, 4, 1]]), 4)
    with pytest.raises(ValueError, match=f"t7: ranks hold rows 0 to 5, columns 0 to 3 .*{what}"):
        find_pieces([tensor], 2)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("limit", [32, 100, 10_000])
def test_rounds_are_bounded_and_send_everything_once(seed, limit):
    tensors = drawn_tensors(seed)
    pieces = find_pieces(tensors, RANKS)
    rounds = plan_rounds(pieces, tensors, limit)

    def rows(found):
        return Counter(
            (*piece._replace(row=row, rows=1),)
            for piece in found
            if piece.source != piece.target
            for row in range(piece.row, piece.row + piece.rows)
        )

    assert rows(piece for each in rounds for piece in each) == rows(pieces)
    for each in rounds:
        sent, received = Counter(), Counter()
        for piece in each:
            sent[piece.source] += piece.cells * 4
            received[piece.target] += piece.cells * 4
        assert 0 < max((sent | received).values()) <= limit


def test_a_row_that_is_larger_than_a_round_has_a_round_of_its_own():
    tensor = Tensor("t", np.array([[0, 0, 3, 8, 0]]), np.array([[0, 0, 3, 8, 1]]), 4)
    rounds = plan_rounds(find_pieces([tensor], 2), [tensor], limit=20)
    assert rounds == [[Piece(0, 0, 1, 0, 0, row, 0, 1, 8)] for row in range(3)]
