"""The recovery of a real job that lost a rank."""

import statistics
from typing import Any

from bench.ett_report import BASELINES, SHOWN, Cell, inside, phase_seconds
from bench.figures.markdown import table
from bench.text import duration

PLAN, PLAN_SENT = "plan, of all but launch and imports", "plan and broadcast, without compiling"
SHARES = {
    "the plan's share of that": PLAN,
    "the plan's share without compiling": "plan, of that without compiling",
    "and with the broadcast": PLAN_SENT,
}


def recovery(result: dict[str, Any]) -> str:
    """A column per variant, on the most ranks that were measured."""
    cells = _cells(result)
    variants = list(cells[0]["jobs"])
    rows = []
    for title in ("plan", "plan broadcast", "compile"):
        rows.append([title, *(duration(_median(cells, each, title)) for each in variants)])
    everything = [statistics.median(_inside(cells, each)) for each in variants]
    rows.append(["all but launch and imports", *map(duration, everything)])
    shares = {
        (check["variant"], check["text"]): check["value"]
        for check in result["checks"]
        if check["ranks"] == cells[0]["ranks"]
    }
    for words, text in SHARES.items():
        rows.append([words, *(f"{shares[each, text]:.2f} %" for each in variants)])
    points = {each: 100 * statistics.median(_etts(cells, each)) for each in variants}
    rows.append(["ETT of this job", *(f"{points[each]:.2f} %" for each in variants)])
    rows.append(["points over TorchRec, over PlanLoader", *(_over(points, v) for v in variants)])
    return table(["", *(SHOWN[each] for each in variants)], rows)


def imports(result: dict[str, Any]) -> str:
    """How noisy it is: what is the same in all variants."""
    cells = _cells(result)
    took = [_median(cells, each, "Python and imports") for each in cells[0]["jobs"]]
    return (
        f"Taken on {cells[0]['ranks']} ranks and {result['cpu_count']} cores, n = {len(cells)}. "
        f"Imports are the same in all variants and took\n"
        f"{duration(min(took))} to {duration(max(took))}, so differences of some seconds are noise."
    )


def bundle(result: dict[str, Any]) -> str:
    """What a start bundle saves a restart."""
    cells = _cells(result)
    plain, cached, own = (
        duration(statistics.median(_inside(cells, each)))
        for each in ("fastplan", "cached", "bundle")
    )
    compiling = {each: _median(cells, each, "compile") for each in ("fastplan", "bundle")}
    reading = _median(cells, "bundle", "start bundle")
    return (
        f"Measured with a real job of {result['tables']} tables on {cells[0]['ranks']} gloo ranks "
        f"that loses a rank\n([what is it worth](ett.md#measured), n = {len(cells)}, "
        f"{result['cpu_count']} cores): from the restart to the end of the first\n"
        f"step, without launch and imports, {plain} with nothing kept, {cached} with the plan "
        f"cache, {own}\nwith the bundle, of which {duration(compiling['bundle'])} are left of "
        f"{duration(compiling['fastplan'])} of compiling. Reading the bundle took "
        f"{duration(reading)}."
    )


def _cells(result: dict[str, Any]) -> list[Cell]:
    most = max(cell["ranks"] for cell in result["cells"])
    return [cell for cell in result["cells"] if cell["ranks"] == most]


def _median(cells: list[Cell], variant: str, title: str) -> float:
    return statistics.median(phase_seconds(cell["jobs"][variant], -1, title) for cell in cells)


def _inside(cells: list[Cell], variant: str) -> list[float]:
    return [inside(cell["jobs"][variant], -1) for cell in cells]


def _etts(cells: list[Cell], variant: str) -> list[float]:
    return [cell["jobs"][variant]["ett"] for cell in cells]


def _over(points: dict[str, float], variant: str) -> str:
    if variant in BASELINES:
        return ""
    return ", ".join(f"{points[variant] - points[baseline]:+.2f}" for baseline in BASELINES)
