"""Time in pieces, compared with a computation nanosecond by nanosecond."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fastplan.ett.phases import (
    Piece,
    clip,
    flatten,
    merge_by_priority,
    phase_name,
    subtract,
    totals,
    within,
)

END = 30
names = st.sampled_from("abcde")


@st.composite
def pieces(draw):
    begin = draw(st.integers(0, END - 1))
    return Piece(begin, draw(st.integers(begin, END)), draw(names))


@st.composite
def rows(draw):
    """Pieces one after the other."""
    edges = sorted(draw(st.lists(st.integers(0, END), max_size=12)))
    pairs = zip(edges[::2], edges[1::2], strict=False)
    return [Piece(begin, end, draw(names)) for begin, end in pairs if end > begin]


def at(row, moment):
    return next((name for begin, end, name in row if begin <= moment < end), None)


def check_row(row):
    assert all(end > begin for begin, end, _ in row)
    assert all(before[1] <= after[0] for before, after in pairwise(row))


@given(st.lists(pieces(), max_size=12))
def test_the_phase_that_began_last_counts(phases):
    row = flatten(phases)
    check_row(row)
    for moment in range(END):
        begun = [p.begin for p in phases if p.begin <= moment < p.end]
        if not begun:
            assert at(row, moment) is None
        else:
            latest = {p.name for p in phases if p.begin == max(begun) and p.end > moment}
            assert at(row, moment) in latest


@given(rows(), rows())
def test_what_is_uncovered_is_said_by_one_row_only(base, top):
    row = subtract(base, top)
    check_row(row)
    for moment in range(END):
        expected = at(base, moment) if at(top, moment) is None else None
        assert at(row, moment) == expected


@given(st.lists(rows(), max_size=4))
def test_the_job_does_what_matters_most(ranks):
    row = merge_by_priority(ranks, lambda name, _: (ord(name), 0))
    check_row(row)
    for moment in range(END):
        done = [at(rank, moment) for rank in ranks]
        expected = min((name for name in done if name is not None), default=None)
        assert at(row, moment) == expected


@given(st.lists(rows(), max_size=4))
def test_among_equals_the_phase_that_began_first_wins(ranks):
    """Also if several ranks are in it one after the other without a gap."""
    found = {}

    def importance(name, begin):
        found[name] = begin
        return begin, 0

    row = merge_by_priority(ranks, importance)
    pieces = [piece for rank in ranks for piece in rank]
    assert found == {name: min(p.begin for p in pieces if p.name == name) for name in found}
    assert set(found) == {piece.name for piece in pieces}
    for moment in range(END):
        done = {at(rank, moment) for rank in ranks} - {None}
        first = min((found[name] for name in done), default=None)
        assert at(row, moment) in {name for name in done if found[name] == first} or not done


@given(rows(), st.integers(0, END), st.integers(0, END))
def test_a_part_of_a_row(row, begin, end):
    part = within(row, begin, end)
    check_row(part)
    for moment in range(END):
        assert at(part, moment) == (at(row, moment) if begin <= moment < end else None)
    assert clip(row, begin, end) == part


@given(rows())
def test_totals_add_up(row):
    assert sum(totals(row).values()) == sum(piece.took for piece in row)


def test_a_phase_without_a_name_can_be_seen():
    assert phase_name("").title == "(no name)"
