"""Plans with custom costs."""

from typing import Any

from bench.figures.markdown import spread, table
from bench.text import duration


def times(result: dict[str, Any]) -> str:
    rows = []
    for name, run in result["runs"].items():
        several = len(run["cpu_seconds"]) > 1
        rows.append(
            [
                name,
                duration(run["median_cpu_seconds"]),
                str(len(run["cpu_seconds"])),
                spread(run["cpu_seconds"]) if several else "",
            ]
        )
    return table(["", "CPU time", "n", "min - max"], rows)


def compiling(result: dict[str, Any]) -> str:
    found = result["compile"]
    return (
        f"Compiling TorchRec's whole cost takes {duration(found['median_compile_seconds'])} of CPU "
        f"time once.\nLoading it in a later process takes {duration(found['median_load_seconds'])} "
        f"(n = {len(found['load_seconds'])})."
    )
