"""Times of a sweep."""

from typing import Any

from bench.figures.markdown import table
from bench.text import duration


def times(result: dict[str, Any]) -> str:
    cells, theirs = result["cells"], result["torchrec"]
    shape = f"{theirs['tables']} tables on {theirs['ranks']} ranks"
    rows = [
        [
            f"TorchRec, one plan of {shape} (n=1)",
            duration(theirs["seconds"]),
            duration(theirs["cpu_seconds"]),
        ]
    ]
    ways = {"into an empty cache": "sweep", "all cached": "sweep_from_cache"}
    for words, name in ways.items():
        found = result[name]
        times = (found["median_seconds"], found["median_cpu_seconds"])
        n = len(found["seconds"])
        rows.append([f"fastplan, {cells} cells, {words} (n={n})", *map(duration, times)])
    return table(["", "time", "CPU time"], rows)
