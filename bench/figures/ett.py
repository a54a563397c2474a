"""The recovery of a real job after it lost a rank."""

import statistics
from typing import Any

from bench.ett_report import BASELINES, SHOWN, Cell, inside, phase_seconds
from bench.figures.markdown import table
from bench.text import duration

PLAN, PLAN_SENT = "plan, of all but launch and imports", "plan and broadcast, without compiling"
SHARES = {
    "share of the plan": PLAN,
    "share of the plan, without compiling": "plan, of that without compiling",
    "share of plan and broadcast, without compiling": PLAN_SENT,
}


def recovery(result: dict[str, Any]) -> str:
    """A column per variant, for the largest number of ranks that was measured."""
    cells = _cells(result)
    variants = list(cells[0]["jobs"])
    rows = []
    for title in ("plan", "plan broadcast", "compile"):
        rows.append([title, *(duration(_median(cells, each, title)) for each in variants)])
    everything = [statistics.median(_inside(cells, each)) for each in variants]
    rows.append(["total without launch and imports", *map(duration, everything)])
    shares = {
        (check["variant"], check["text"]): check["value"]
        for check in result["checks"]
        if check["ranks"] == cells[0]["ranks"]
    }
    for words, text in SHARES.items():
        rows.append([words, *(f"{shares[each, text]:.2f} %" for each in variants)])
    points = {each: 100 * statistics.median(_etts(cells, each)) for each in variants}
    rows.append(["the whole job", *(duration(_job_seconds(cells, each)) for each in variants)])
    rows.append(["ETT of this job", *(f"{points[each]:.2f} %" for each in variants)])
    rows.append(["points over TorchRec, over PlanLoader", *(_over(points, v) for v in variants)])
    return table(["", *(SHOWN[each] for each in variants)], rows)


def imports(result: dict[str, Any]) -> str:
    """The noise: the time of a phase that is the same in all variants."""
    cells = _cells(result)
    took = [_median(cells, each, "Python and imports") for each in cells[0]["jobs"]]
    return (
        f"Measured on {cells[0]['ranks']} ranks and {result['cpu_count']} cores, n = {len(cells)}. "
        f"Imports are the same in all variants and took\n"
        f"{duration(min(took))} to {duration(max(took))}, so differences of a few seconds are "
        f"noise."
    )


def bundle(result: dict[str, Any]) -> str:
    """The time that a start bundle saves in a restart."""
    cells = _cells(result)
    plain, cached, own = (
        duration(statistics.median(_inside(cells, each)))
        for each in ("fastplan", "cached", "bundle")
    )
    compiling = {each: _median(cells, each, "compile") for each in ("fastplan", "bundle")}
    reading = _median(cells, "bundle", "start bundle")
    return (
        f"Measured with a real job of {result['tables']} tables on {cells[0]['ranks']} gloo ranks "
        f"that loses a rank\n([Effective Training Time](ett.md#measured), n = {len(cells)}, "
        f"{result['cpu_count']} cores). From the restart to the end of the\n"
        f"first step, without launch and imports, it takes {plain} with neither cache nor bundle, "
        f"{cached} with\nthe plan cache, and {own} with the bundle. The bundle reduces compiling "
        f"from {duration(compiling['fastplan'])} to {duration(compiling['bundle'])}.\n"
        f"Reading the bundle took {duration(reading)}."
    )


def _cells(result: dict[str, Any]) -> list[Cell]:
    most = max(cell["ranks"] for cell in result["cells"])
    return [cell for cell in result["cells"] if cell["ranks"] == most]


def _median(cells: list[Cell], variant: str, title: str) -> float:
    return statistics.median(phase_seconds(cell["jobs"][variant], -1, title) for cell in cells)


def _inside(cells: list[Cell], variant: str) -> list[float]:
    return [inside(cell["jobs"][variant], -1) for cell in cells]


def _job_seconds(cells: list[Cell], variant: str) -> float:
    return statistics.median(cell["jobs"][variant]["seconds"] for cell in cells)


def _etts(cells: list[Cell], variant: str) -> list[float]:
    return [cell["jobs"][variant]["ett"] for cell in cells]


def _over(points: dict[str, float], variant: str) -> str:
    if variant in BASELINES:
        return ""
    return ", ".join(f"{points[variant] - points[baseline]:+.2f}" for baseline in BASELINES)
