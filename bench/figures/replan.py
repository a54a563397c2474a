"""Bytes that move, and ratings, when a model or a cluster changes."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from bench.figures.markdown import part, table

SIDES = {"TorchRec": "torchrec", "optimize": "optimize", "replan": "replan"}
KINDS = {"no host lost": False, "a host lost": True}

Row = dict[str, Any]


def moved(result: dict[str, Any]) -> str:
    """Parts of all bytes, and how often what must move."""
    rows = []
    for words, lost in KINDS.items():
        own = [row for row in result["changes"] if row["host_lost"] == lost]
        title = f"{words} ({len(own)})"
        rows.append([title, *(_parts(own, side) for side in SIDES.values())])
        if lost:
            times = [f"{_times(own, side)} x" for side in SIDES.values()]
            rows.append(["the same, of what must move", *times])
    return table(["bytes moved, median (largest)", *SIDES], rows)


def ratings(result: dict[str, Any]) -> str:
    """Whether none is worse than TorchRec's, what was planned from scratch, and what it took."""
    rows = result["changes"]
    said = [f"Ratings are {_no_worse(rows)}."]
    for row in rows:
        if not row["followed"]:
            proof = ", and it is proven that no plan can" if row["impossible"] else ""
            said.append(
                f"{row['instance']}, {row['change']}: no plan with TorchRec's rating was found "
                f"within 1.3 times{proof}; the plan is TorchRec's."
            )
    replan, optimize = (
        [1000 * row[side]["seconds"] for row in rows] for side in ("replan", "optimize")
    )
    usual = statistics.median(optimize)
    said.append(
        f"CPU time of the search: median {statistics.median(replan):.0f} ms, at most "
        f"{max(replan):.0f} ms; optimize, with a million moves, {usual:.0f} ms."
    )
    return "\n".join(said)


def drawn(result: dict[str, Any]) -> str:
    """Cases that nothing was tuned with."""
    rows = result["drawn"]
    kept, lost = ([row for row in rows if row["host_lost"] == kind] for kind in (False, True))
    return (
        f"{len(rows)} models, clusters and changes drawn at random, with which nothing was tuned: "
        f"ratings are\n{_no_worse(rows)}; replan moves {_parts(kept, 'replan')} where no host is "
        f"lost ({len(kept)}), and {_times(lost, 'replan')} times what must move where one is "
        f"({len(lost)});\nTorchRec {_parts(kept, 'torchrec')} and {_times(lost, 'torchrec')} times."
    )


def day(result: dict[str, Any]) -> str:
    rows = result["day"]
    scratch = sum(not row["followed"] for row in rows)
    part_moved = {
        side: statistics.mean(row[side]["moved"] / row["bytes"] for row in rows) for side in ALL
    }
    worst = {side: _above(rows, side, max) for side in ALL}
    return (
        f"Over {len(rows)} small changes of random 50 x 16, each plan following the one before and "
        f"held within 3 % of\noptimize's rating, replan moves {part(part_moved['replan'])} a "
        f"change, {scratch} plans from scratch included, and is at worst\n"
        f"{worst['replan']:.1f} % above optimize, which moves {part(part_moved['optimize'])}; "
        f"TorchRec moves {part(part_moved['torchrec'])} and is at worst {worst['torchrec']:.0f} % "
        f"above."
    )


def timing(result: dict[str, Any]) -> str:
    found = result["timing"]
    whole, work = found["whole plan()"], found["estimate and search"]
    spread = found["quartiles"]
    rating = 100 * (found["rating"]["replan"] / found["rating"]["cold"] - 1)

    def said(name: str, side: str) -> str:
        low, high = spread[name][side]
        return f"{found[name][side]:.1f} ms [{low:.1f}, {high:.1f}]"

    search = "estimate and search"
    return (
        f"At 1000 x 64 with 1 % of the tables changed (n = {found['n']}, medians of CPU time, "
        f"quartiles in brackets),\nestimate and search take {said(search, 'replan')} "
        f"instead of {said(search, 'cold')}, {work['replan'] / work['cold']:.2f} of "
        f"it\n(goal: a third), for a rating {rating:.1f} % above the cold one and "
        f"{part(found['moved_part'])} of all bytes moved. A whole `plan()` takes\n"
        f"{said('whole plan()', 'replan')} instead of {said('whole plan()', 'cold')}, "
        f"{whole['replan'] / whole['cold']:.2f} of it: reserving memory, reading the model\nand "
        f"building the plan are most of either."
    )


ALL = tuple(SIDES.values())


def _no_worse(rows: list[Row]) -> str:
    better = sum(row["replan"]["rating"] <= row["torchrec"]["rating"] for row in rows)
    return f"at most TorchRec's in {better} of {len(rows)}"


def _parts(rows: list[Row], side: str) -> str:
    parts = [row[side]["moved"] / row["bytes"] for row in rows]
    return f"{part(statistics.median(parts))} ({part(max(parts))})"


def _times(rows: list[Row], side: str) -> str:
    times = [row[side]["moved"] / row["least"] for row in rows]
    return f"{statistics.median(times):.2f} ({max(times):.2f})"


def _above(rows: list[Row], side: str, which: Callable[[Iterable[float]], float]) -> float:
    return 100 * (which(row[side]["rating"] / row["optimize"]["rating"] for row in rows) - 1)
