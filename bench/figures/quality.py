"""How far ratings are above a proven bound."""

import json
import statistics
from typing import Any

from bench.figures.markdown import table
from bench.machine import RESULTS
from bench.quality import EXACT_SECONDS

NEARLY = 1e-6
SEARCHES = {"TorchRec": "default", "by perf": "by perf", "dynamic programming": "programming"}


def gaps(result: dict[str, Any]) -> str:
    seeds = json.loads((RESULTS / "quality_seeds.json").read_text())
    proven = {row["name"]: row["gaps"] for row in seeds["rows"]}
    rows = []
    for row in result["rows"]:
        greedy = min((each for each in row["greedy"].values() if each is not None), default=None)
        ratings = [row["torchrec"][name] for name in SEARCHES.values()]
        ratings += [greedy, *(entry["rating"] for entry in row["fastplan"])]
        own = sorted(proven[row["name"]])
        rows.append(
            [
                row["name"],
                *(_above(rating, row["bound"]) for rating in ratings),
                f"{100 * statistics.median(own):.2f} ({100 * own[0]:.2f} to {100 * own[-1]:.2f})",
            ]
        )
    budgets = [f"{entry['budget_seconds']:g} s" for entry in result["rows"][0]["fastplan"]]
    budgets[0] = f"fastplan {budgets[0]}"
    count = len(seeds["rows"][0]["gaps"])
    last = f"proven in {seeds['seconds']:g} s, {count} seeds"
    return table(["tables x ranks", *SEARCHES, "greedy", *budgets, last], rows)


def program(result: dict[str, Any]) -> str:
    """The results of an integer program for the small instances."""
    rows = [row for row in result["rows"] if row["exact"] is not None]
    below = sum(row["exact"]["bound"] < row["bound"] * (1 - NEARLY) for row in rows)
    above = sum(row["exact"]["bound"] > row["bound"] * (1 + NEARLY) for row in rows)
    gains = [max(_gain(row), 0.0) for row in rows]
    better = [gain for gain in gains if gain > NEARLY]
    said = (
        f"a better plan on {len(better)}, by at most {100 * max(gains):.2f} %"
        if better
        else "no better plan"
    )
    return (
        f"An integer program (HiGHS, {EXACT_SECONDS:g} s, given the rating of fastplan's plan) "
        f"proved a weaker bound than fastplan\non {below} of the {len(rows)} small instances and a "
        f"stronger one on {above}. It found {said}."
    )


def _gain(row: dict[str, Any]) -> float:
    best = min(entry["rating"] for entry in row["fastplan"] if entry["rating"] is not None)
    found = row["exact"]["rating"]
    return 0.0 if found is None else 1 - found / best


def _above(rating: float | None, bound: float) -> str:
    return "none" if rating is None else f"{100 * (rating / bound - 1):.2f}"
