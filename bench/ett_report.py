"""The results that bench/ett.py stores and prints: the variants of a job side by side."""

import statistics
from collections.abc import Callable
from typing import Any

from bench.text import duration, table
from fastplan.ett.arithmetic import Report
from fastplan.ett.phases import NAMES

SHOWN = {
    "torchrec": "TorchRec",
    "loader": "PlanLoader hit",
    "fastplan": "fastplan, no cache",
    "cached": "plan cache",
    "bundle": "start bundle",
}
BASELINES = ("torchrec", "loader")
_STARTS = ("first start", "recovery")

# The rows of a start. The last row has all other phases.
_ROWS = {
    "launch": ("launch", "restart", "down"),
    "Python and imports": ("imports",),
    "process group": ("process_group",),
    "start bundle": ("bundle",),
    "model build": ("model_build",),
    "plan": ("plan",),
    "plan broadcast": ("broadcast",),
    "DMP": ("dmp", "shard", "fused_optimizer", "data_parallel"),
    "checkpoint restore": ("restore",),
    "compile": ("compile", "recompile"),
    "first batch": ("training", "lost"),
}
_OTHERS = "other"
_OUTSIDE = (*_ROWS["launch"], "imports")

Cell = dict[str, Any]
Job = dict[str, Any]
Figure = Callable[[Job], float]


def start_rows() -> dict[str, tuple[str, ...]]:
    """The rows of a start, and the phases that each of them adds up."""
    named = {name for names in _ROWS.values() for name in names}
    return {**_ROWS, _OTHERS: tuple(name for name in NAMES if name not in named)}


def digest(report: Report, starts: list[list[dict[str, Any]]]) -> Job:
    """The stored result of a job: its times, and what the ranks reported about each start."""
    return {
        "ett": report.ett,
        "seconds": report.seconds,
        "time_to_start": report.time_to_start,
        "time_to_recover": report.times_to_recover[0],
        "phases": report.phases,
        "starts": [
            {
                "until_first_step": attempt.until_first_step,
                "plan": {} if attempt.plan is None else attempt.plan.parts,
                "searched": ranks[0]["searched"],
                "graphs_found": sum(rank["hits"] for rank in ranks),
                "graphs_compiled": sum(rank["misses"] for rank in ranks),
                "taken": ranks[0]["taken"],
            }
            for attempt, ranks in zip(report.attempts, starts, strict=True)
        ],
    }


def checks(cells: list[Cell]) -> list[dict[str, Any]]:
    """Figures derived from the cells, as medians if there are several."""
    found = []
    for ranks in sorted({cell["ranks"] for cell in cells}):
        own = [cell for cell in cells if cell["ranks"] == ranks]
        for variant in own[0]["jobs"]:
            for words, figure in _SHARES.items():
                found.append(
                    {
                        "ranks": ranks,
                        "variant": variant,
                        "text": words,
                        "value": 100 * statistics.median(_of(own, variant, figure)),
                        "unit": "%",
                    }
                )
    return found


def report(result: dict[str, Any]) -> str:
    """The whole result as text."""
    steps = result["steps"]
    parts = [
        f"{result['tables']} tables, {steps['all']} steps, checkpoint after {steps['saved']}, a "
        f"rank killed after {steps['killed']}; {result['cpu_count']} x {result['cpu']}"
    ]
    for ranks in sorted({cell["ranks"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["ranks"] == ranks]
        parts.append(f"\n{ranks} gloo ranks, n = {len(cells)}{_SPREAD if len(cells) > 1 else ''}")
        parts.append(_jobs(cells))
        parts += [f"\n{_start(cells, number)}" for number in range(len(_STARTS))]
        parts.append(f"\n{_shares(result['checks'], ranks, list(cells[0]['jobs']))}")
    wrong = [line for cell in result["cells"] for line in cell["differences"]]
    parts.append("\n" + ("\n".join(wrong) if wrong else _SAME))
    return "\n".join(parts)


_SPREAD = ": median (least - most)"
_SAME = """\
all losses of all variants and of both attempts are the same to the bit
a restart from the plan cache or the bundle searched for no plan
a restart from the bundle compiled no graph and built no library on any rank; all others did"""


def _jobs(cells: list[Cell]) -> str:
    """A row per variant: ETT, and the difference to both baselines."""
    rows = []
    for variant in cells[0]["jobs"]:
        rows.append(
            [
                SHOWN[variant],
                shown(_of(cells, variant, lambda job: 100 * job["ett"]), "{:.2f} %".format),
                *(_points(cells, variant, baseline) for baseline in BASELINES),
                shown(_of(cells, variant, lambda job: job["time_to_start"])),
                shown(_of(cells, variant, lambda job: job["time_to_recover"])),
            ]
        )
    titles = ["the job", "ETT", "points over TorchRec", "over PlanLoader", "Time to Start"]
    return table([*titles, "Time to Recover"], rows)


def _points(cells: list[Cell], variant: str, baseline: str) -> str:
    if variant in BASELINES or baseline not in cells[0]["jobs"]:
        return "-"
    jobs = [cell["jobs"] for cell in cells]
    found = [100 * (job[variant]["ett"] - job[baseline]["ett"]) for job in jobs]
    return shown(found, "{:+.2f}".format)


def _start(cells: list[Cell], number: int) -> str:
    """A column per variant: the time by phase until the first step of an attempt ends."""
    variants = list(cells[0]["jobs"])
    rows = []
    for title in [*_ROWS, _OTHERS]:
        times = [
            statistics.median(phase_seconds(cell["jobs"][variant], number, title) for cell in cells)
            for variant in variants
        ]
        if any(times):
            rows.append([title, *(duration(took) if took else "-" for took in times)])
    whole = [_of(cells, variant, lambda job: _whole(job, number)) for variant in variants]
    own = [_of(cells, variant, lambda job: inside(job, number)) for variant in variants]
    rows.append(["total", *map(shown, whole)])
    rows.append(["without launch and imports", *map(shown, own)])
    titles = [f"{_STARTS[number]}, to the first step", *(SHOWN[variant] for variant in variants)]
    return table(titles, rows)


def _shares(found: list[dict[str, Any]], ranks: int, variants: list[str]) -> str:
    values = {(c["variant"], c["text"]): c["value"] for c in found if c["ranks"] == ranks}
    rows = [
        [words, *(f"{values[variant, words]:.2f} %" for variant in variants)] for words in _SHARES
    ]
    return table(["share of the recovery", *(SHOWN[variant] for variant in variants)], rows)


def _of(cells: list[Cell], variant: str, figure: Figure) -> list[float]:
    return [figure(cell["jobs"][variant]) for cell in cells]


def shown(values: list[float], unit: Callable[[float], str] = duration) -> str:
    """The median, and the spread if there are several values."""
    middle = unit(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({unit(min(values))} - {unit(max(values))})"


def phase_seconds(job: Job, number: int, title: str) -> float:
    """Seconds of a row of a start."""
    start = job["starts"][number]["until_first_step"]
    if title in _ROWS:
        return float(sum(start.get(name, 0.0) for name in _ROWS[title]))
    named = {name for names in _ROWS.values() for name in names}
    return float(sum(seconds for name, seconds in start.items() if name not in named))


def _whole(job: Job, number: int) -> float:
    return float(sum(job["starts"][number]["until_first_step"].values()))


def inside(job: Job, number: int, besides: tuple[str, ...] = ()) -> float:
    """Seconds of a start without launch, imports and the given phases."""
    start = job["starts"][number]["until_first_step"]
    outside = (*_OUTSIDE, *besides)
    return float(sum(seconds for name, seconds in start.items() if name not in outside))


def _share(names: tuple[str, ...], besides: tuple[str, ...] = ()) -> Figure:
    """A share of the last start, which is the one that can reuse what another start saved."""

    def figure(job: Job) -> float:
        start = job["starts"][-1]["until_first_step"]
        return sum(start.get(name, 0.0) for name in names) / inside(job, -1, besides)

    return figure


_PLANNING = ("plan", "broadcast")
_SHARES: dict[str, Figure] = {
    "plan, of all but launch and imports": _share(("plan",)),
    "plan and broadcast": _share(_PLANNING),
    "plan, of that without compiling": _share(("plan",), _ROWS["compile"]),
    "plan and broadcast, without compiling": _share(_PLANNING, _ROWS["compile"]),
}
