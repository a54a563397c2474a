"""What bench/ett.py prints: the variants of a job side by side."""

import statistics
from typing import Any

from bench.text import duration, table
from fastplan.ett.names import NAMES

SHOWN = {
    "torchrec": "TorchRec",
    "loader": "TorchRec + PlanLoader",
    "fastplan": "fastplan",
    "cached": "fastplan, cached",
}
BASELINES = ("torchrec", "loader")
_OUTSIDE = ("launch", "restart", "down", "imports")
_PLANNING = ("plan", "broadcast")

Cell = dict[str, Any]


def report(result: dict[str, Any]) -> str:
    """The whole result as text."""
    parts = [
        f"{result['tables']} tables, {result['steps']['all']} steps, checkpoint after "
        f"{result['steps']['saved']}, a rank killed after {result['steps']['killed']}; "
        f"{result['cpu_count']} x {result['cpu']}"
    ]
    for ranks in sorted({cell["ranks"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["ranks"] == ranks]
        parts += [f"\n{ranks} gloo ranks, {len(cells)} x", _breakdown(cells), _starts(cells)]
    parts.append("")
    parts += [
        f"{check['text']}: {check['value']:.4g} {check['unit']}" for check in result["checks"]
    ]
    wrong = [line for cell in result["cells"] for line in cell["differences"]]
    same = "all losses of all variants and of both attempts are the same to the bit"
    parts.append("\n".join(wrong) if wrong else same)
    return "\n".join(parts)


def checks(cells: list[Cell]) -> list[dict[str, Any]]:
    """Figures derived from the cells, medians where there are several."""
    found = []
    for ranks in sorted({cell["ranks"] for cell in cells}):
        own = [cell for cell in cells if cell["ranks"] == ranks]
        for variant in own[0]["jobs"]:
            for words, figure in (("planning", _plan_alone), ("with broadcast", _planning_share)):
                found.append(
                    {
                        "text": f"{ranks} ranks, {SHOWN[variant]}: share of the time to the first "
                        f"batch without imports, {words}",
                        "value": 100 * _median(own, variant, figure),
                        "unit": "%",
                    }
                )
        for baseline in BASELINES:
            for variant in own[0]["jobs"]:
                if variant not in BASELINES and baseline in own[0]["jobs"]:
                    points = [
                        100 * (c["jobs"][variant]["ett"] - c["jobs"][baseline]["ett"]) for c in own
                    ]
                    found.append(
                        {
                            "text": f"{ranks} ranks, {SHOWN[variant]} over {SHOWN[baseline]}: ETT",
                            "value": statistics.median(points),
                            "unit": "points",
                        }
                    )
    return found


def _planning_share(job: dict[str, Any], names: tuple[str, ...] = _PLANNING) -> float:
    """The worst of a job's starts. The first batch counts as reached when its step has ended."""
    shares = []
    for attempt in job["attempts"]:
        start = attempt["until_first_step"]
        inside = sum(seconds for name, seconds in start.items() if name not in _OUTSIDE)
        shares.append(sum(start.get(name, 0.0) for name in names) / inside)
    return max(shares)


def _plan_alone(job: dict[str, Any]) -> float:
    return _planning_share(job, ("plan",))


def _median(cells: list[Cell], variant: str, figure: Any) -> float:
    return statistics.median(figure(cell["jobs"][variant]) for cell in cells)


def _breakdown(cells: list[Cell]) -> str:
    """Seconds by phase, summed over the attempts of a job."""
    variants = list(cells[0]["jobs"])
    seen = {name for cell in cells for job in cell["jobs"].values() for name in job["phases"]}
    rows = [
        ["ETT", *(f"{100 * _median(cells, v, lambda j: j['ett']):.2f} %" for v in variants)],
        ["whole job", *(duration(_median(cells, v, lambda j: j["seconds"])) for v in variants)],
    ]
    for name in [known for known in NAMES if known in seen] + sorted(seen - NAMES.keys()):
        title = NAMES[name].title if name in NAMES else name

        def took(job: dict[str, Any], name: str = name) -> float:
            return float(job["phases"].get(name, 0.0))

        rows.append([title, *(duration(_median(cells, v, took)) for v in variants)])
    return table(["", *(SHOWN[v] for v in variants)], rows)


def _starts(cells: list[Cell]) -> str:
    """Time to Start and Time to Recover, and what planning is of them."""
    rows = []
    for variant in cells[0]["jobs"]:
        rows.append(
            [
                SHOWN[variant],
                duration(_median(cells, variant, lambda j: j["time_to_start"])),
                duration(_median(cells, variant, lambda j: j["times_to_recover"][0])),
                duration(_median(cells, variant, _planning)),
                f"{100 * _median(cells, variant, _planning_share):.2f} %",
            ]
        )
    titles = ["", "Time to Start", "Time to Recover", "planning, worst start"]
    return "\n" + table([*titles, "of first batch without imports"], rows)


def _planning(job: dict[str, Any]) -> float:
    starts = [attempt["until_first_step"] for attempt in job["attempts"]]
    return max(sum(start.get(name, 0.0) for name in _PLANNING) for start in starts)
