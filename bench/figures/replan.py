"""Moved bytes and ratings when a model or a cluster changes."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from bench.figures.markdown import part, table

SIDES = {"TorchRec": "torchrec", "optimize": "optimize", "replan": "replan"}
KINDS = {"no host lost": False, "a host lost": True}

Row = dict[str, Any]


def moved(result: dict[str, Any]) -> str:
    """Moved bytes as a share of all bytes, and as a multiple of what must move."""
    rows = []
    for words, lost in KINDS.items():
        own = [row for row in result["changes"] if row["host_lost"] == lost]
        title = f"{words} ({len(own)})"
        rows.append([title, *(_parts(own, side) for side in SIDES.values())])
        if lost:
            times = [f"{_times(own, side)} x" for side in SIDES.values()]
            rows.append(["a host lost, multiple of what must move", *times])
    return table(["bytes moved, median (largest)", *SIDES], rows)


def ratings(result: dict[str, Any]) -> str:
    """Ratings compared with TorchRec's, cases planned from scratch, and CPU time."""
    rows = result["changes"]
    said = [f"Ratings are {_no_worse(rows)}."]
    for row in rows:
        if not row["followed"]:
            proof = ", and a proof shows that there is none" if row["impossible"] else ""
            said.append(
                f"{row['instance']}, {row['change']}: no plan with TorchRec's rating was found "
                f"that moves at most 1.3 times what must move{proof}. The plan is TorchRec's."
            )
    replan, optimize = (
        [1000 * row[side]["seconds"] for row in rows] for side in ("replan", "optimize")
    )
    usual = statistics.median(optimize)
    said.append(
        f"CPU time of the search: median {statistics.median(replan):.0f} ms, at most "
        f"{max(replan):.0f} ms. `optimize` with a million moves takes {usual:.0f} ms."
    )
    return "\n".join(said)


def drawn(result: dict[str, Any]) -> str:
    """Cases that were not used for tuning."""
    rows = result["drawn"]
    kept, lost = ([row for row in rows if row["host_lost"] == kind] for kind in (False, True))
    return (
        f"{len(rows)} models, clusters and changes were drawn at random and not used for tuning. "
        f"Ratings are\n{_no_worse(rows)}. If no host is lost ({len(kept)} cases), replan moves "
        f"{_parts(kept, 'replan')}, TorchRec {_parts(kept, 'torchrec')}.\nIf a host is lost "
        f"({len(lost)} cases), replan moves {_times(lost, 'replan')} times what must move, "
        f"TorchRec {_times(lost, 'torchrec')} times.\nFigures are medians, with the largest in "
        f"brackets."
    )


def day(result: dict[str, Any]) -> str:
    rows = result["day"]
    scratch = sum(not row["followed"] for row in rows)
    part_moved = {
        side: statistics.mean(row[side]["moved"] / row["bytes"] for row in rows) for side in ALL
    }
    worst = {side: _above(rows, side, max) for side in ALL}
    return (
        f"{len(rows)} small changes of random 50 x 16, one after the other: each plan follows the "
        f"previous one and must stay\nwithin 3 % of the rating of `optimize`. Replan moves "
        f"{part(part_moved['replan'])} per change ({scratch} plans were from scratch) and is\nat "
        f"worst {worst['replan']:.1f} % above `optimize`, which moves "
        f"{part(part_moved['optimize'])} per change. TorchRec moves "
        f"{part(part_moved['torchrec'])} per change and is\nat worst "
        f"{worst['torchrec']:.0f} % above `optimize`."
    )


ALL = tuple(SIDES.values())


def _no_worse(rows: list[Row]) -> str:
    better = sum(row["replan"]["rating"] <= row["torchrec"]["rating"] for row in rows)
    return f"at most TorchRec's in {better} of {len(rows)} cases"


def _parts(rows: list[Row], side: str) -> str:
    parts = [row[side]["moved"] / row["bytes"] for row in rows]
    return f"{part(statistics.median(parts))} ({part(max(parts))})"


def _times(rows: list[Row], side: str) -> str:
    times = [row[side]["moved"] / row["least"] for row in rows]
    return f"{statistics.median(times):.2f} ({max(times):.2f})"


def _above(rows: list[Row], side: str, which: Callable[[Iterable[float]], float]) -> float:
    return 100 * (which(row[side]["rating"] / row["optimize"]["rating"] for row in rows) - 1)
