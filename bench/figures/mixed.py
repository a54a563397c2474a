"""Plans with the custom parts of frameworks."""

from typing import Any

from bench.figures.markdown import spread, table
from bench.text import duration, ratio


def frameworks(result: dict[str, Any]) -> str:
    rows = []
    for cell in result["cells"]:
        theirs, ours = cell["torchrec"], cell["fastplan"]
        own = ours["median_own_cpu_seconds"]
        rows.append(
            [
                cell["name"],
                f"{duration(theirs['median_cpu_seconds'])} (n = {len(theirs['cpu_seconds'])})",
                duration(ours["median_cpu_seconds"]),
                f"{spread(ours['cpu_seconds'])} (n = {len(ours['cpu_seconds'])})",
                duration(own) if own else "",
                ratio(cell["ratio"]),
                ratio(cell["ratio_without_own"]) if own else "",
            ]
        )
    header = ["parts", "TorchRec", "fastplan", "min - max", "of it the parts' own code", "ratio"]
    return table([*header, "without it"], rows)
