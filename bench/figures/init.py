"""The start of a rank that receives a plan."""

from typing import Any

from bench.figures.markdown import spread, table
from bench.init import WAYS, gain
from bench.text import duration


def starts(result: dict[str, Any]) -> str:
    rows = []
    for cell in result["cells"]:
        for number, (way, shown) in enumerate(WAYS.items()):
            found = cell["ways"][way]
            size = f"{cell['tables']} tables x {cell['ranks']} ranks, " if number == 0 else ""
            start = found["start"]
            rows.append(
                [
                    f"{size}{shown}",
                    duration(found["receive"]["median_cpu_seconds"]),
                    duration(found["dmp"]["median_cpu_seconds"]),
                    duration(start["median_cpu_seconds"]),
                    f"{spread(start['cpu_seconds'])}, {cell['n']}",
                    f"{gain(cell['ways'], way):.2f}",
                ]
            )
    header = ["start of a rank, CPU time", "receive", "DMP", "start", "min - max, n"]
    return table([*header, "TorchRec / this"], rows)


def goals(result: dict[str, Any]) -> str:
    said = [
        f"{goal['value']:.2f} x at {cell['tables']} x {cell['ranks']} "
        f"(goal of {goal['goal']:g} x {'met' if goal['holds'] else 'not met'})"
        for cell in result["cells"]
        for goal in cell["goals"]
    ]
    return f"Speed-up by the plan alone: {', '.join(said)}."
