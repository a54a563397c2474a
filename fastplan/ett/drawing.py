"""Lanes of time as SVG: a rectangle per piece, its words in a tooltip."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from fastplan.ett.names import NAMES, name_of
from fastplan.ett.pieces import Piece
from fastplan.ett.timeline import Attempt, RankTime
from fastplan.report.names import visible
from fastplan.report.units import of_seconds

_WIDTH = 1000.0
_FINEST = 2000  # pieces that a lane can show side by side
_TICKS = 5


def lane(
    pieces: Iterable[Piece], begin: int, end: int, *, whole: bool = False, edge: int | None = None
) -> str:
    """A lane from `begin` to `end`, with a line at `edge`."""
    scale = _WIDTH / max(1, end - begin)
    shapes = [_rectangle(piece, begin, scale) for piece in thinned(pieces, begin, end)]
    if edge is not None and begin <= edge <= end:
        x = f"{(edge - begin) * scale:.2f}"
        shapes.append(f'<line class="edge" x1="{x}" x2="{x}" y1="0" y2="10"/>')
    kind = "lane whole" if whole else "lane"
    return (
        f'<svg class="{kind}" viewBox="0 0 1000 10" preserveAspectRatio="none">'
        f"{''.join(shapes)}</svg>"
    )


def thinned(pieces: Iterable[Piece], begin: int, end: int) -> list[Piece]:
    """Pieces that can be seen: runs of those that are too small become one, named by the most."""
    finest = (end - begin) / _FINEST
    shown: list[Piece] = []
    small: list[Piece] = []

    def flush() -> None:
        if small:
            most = max(small, key=lambda piece: piece.took)
            shown.append(Piece(small[0].begin, small[-1].end, most.name))
            small.clear()

    for piece in pieces:
        if piece.took >= finest:
            flush()
            shown.append(piece)
        elif piece.took > 0:
            small.append(piece)
            if small[-1].end - small[0].begin >= finest:
                flush()
    flush()
    return shown


def _rectangle(piece: Piece, begin: int, scale: float) -> str:
    words = f"{name_of(piece.name).title}: {of_seconds(piece.took / 1e9)}"
    return (
        f'<rect class="{css_class(piece.name)}" x="{(piece.begin - begin) * scale:.2f}" '
        f'width="{piece.took * scale:.2f}" height="10"><title>{escape(visible(words))}</title>'
        "</rect>"
    )


def css_class(name: str) -> str:
    """The class of a phase; the user's own share one."""
    return f"p-{name}" if name in NAMES else "p-own"


def axis(begin: int, end: int) -> str:
    """Times under a lane, from 0 on."""
    ticks = [(end - begin) * i / (_TICKS - 1) / 1e9 for i in range(_TICKS)]
    return "".join(f"<span>{escape(of_seconds(tick)) if tick else '0'}</span>" for tick in ticks)


def legend(names: Iterable[str]) -> str:
    """What the colours mean, in the order of a job."""
    order = {name: place for place, name in enumerate(NAMES)}
    known = sorted(set(names), key=lambda name: (order.get(name, len(order)), name))
    items = "".join(
        f'<li><svg viewBox="0 0 10 10"><rect class="{css_class(name)}" width="10" height="10"/>'
        f"</svg>{escape(visible(name_of(name).title))}</li>"
        for name in known
    )
    return f'<ul class="legend">{items}</ul>'


def chosen_ranks(attempt: Attempt, most: int) -> Sequence[RankTime]:
    """All ranks, or those that tell most: the first, those that were waited for, and some more."""
    ranks = attempt.ranks
    if len(ranks) <= most:
        return ranks
    latest = sorted(ranks, key=lambda rank: -(rank.first_batch or rank.end))[: most // 4]
    spaced = [ranks[i * len(ranks) // most] for i in range(most)]
    picked: dict[int, RankTime] = {}
    for rank in (ranks[0], *latest, *_shuffled(spaced)):
        if len(picked) < most:
            picked[rank.rank] = rank
    return [picked[number] for number in sorted(picked)]


def _shuffled(ranks: list[RankTime]) -> list[RankTime]:
    """An order that drops no part of the ranks, and is always the same."""
    return sorted(ranks, key=lambda rank: hashlib.sha256(str(rank.rank).encode()).digest())
