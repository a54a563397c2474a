"""Times of re-plans."""

from typing import Any

from bench.figures.markdown import part, table
from bench.input_kinds import COLD, FOLLOWING
from bench.text import duration, ratio

Row = dict[str, Any]


def replans(result: dict[str, Any]) -> str:
    """Whole plan() calls with 1 % of the tables changed, by kind of `previous`."""
    sizes = {
        f"{size['tables']} x {size['ranks']}": {row["name"]: row for row in size["rows"]}
        for size in result["sizes"]
    }
    names = {"cold plan": COLD, **FOLLOWING}
    rows = [
        [words, *(_cell(rows[name], rows[COLD]) for rows in sizes.values())]
        for words, name in names.items()
    ]
    said = [_outcome(name, rows) for name, rows in sizes.items()]
    return "\n".join([table(["CPU time of `plan()`", *sizes], rows), "", *said])


def _cell(row: Row, cold: Row) -> str:
    low, high = map(duration, row["quartiles_seconds"])
    text = f"{duration(row['median_seconds'])} [{low}, {high}], n = {row['n']}"
    if row is cold:
        return text
    return f"{text}: {ratio(row['median_seconds'] / cold['median_seconds'])}"


def _outcome(size: str, rows: dict[str, Row]) -> str:
    """The quality of the re-plans of a size, and which of them searched from scratch."""
    followed = [rows[name] for name in FOLLOWING.values()]
    if not all(row["followed"] for row in followed):
        count = sum(row["followed"] for row in followed)
        return f"At {size}, {count} of {len(followed)} plans follow the previous one."
    above = _range([100 * (row["rating"] / rows[COLD]["rating"] - 1) for row in followed], "+.1f")
    parts = sorted(row["moved_part"] for row in followed)
    moved = dict.fromkeys(map(part, (parts[0], parts[-1])))
    quick = [words for words, name in FOLLOWING.items() if not rows[name]["from_scratch"]]
    if len(quick) == len(followed):
        path = "All re-plans take the quick path."
    elif quick:
        named = " and ".join(quick)
        path = f"Re-plans with {named} take the quick path. The others also plan from scratch."
    else:
        path = "No re-plan takes the quick path: each also plans from scratch."
    return (
        f"At {size}, ratings relative to the cold plan: {above} %; bytes moved: "
        f"{' to '.join(moved)}.\n{path}"
    )


def _range(values: list[float], form: str) -> str:
    low, high = (format(value, form) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
