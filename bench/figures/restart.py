"""The recovery of a job whose workers are forks of a process that has imported everything."""

from typing import Any

from bench.ett_report import start_rows
from bench.figures.markdown import table
from bench.restart import KINDS, LAUNCHERS, SHOWN, phase_seconds, speedup, spread, to_first_step
from bench.text import duration

_ROWS = ("launch", "Python and imports", "DMP", "compile")


def recovery(result: dict[str, Any]) -> str:
    """A table per number of ranks, and the job that was measured."""
    rows = []
    for ranks in sorted({cell["ranks"] for cell in result["cells"]}):
        cells = [cell for cell in result["cells"] if cell["ranks"] == ranks]
        for title in _ROWS:
            names = start_rows()[title]
            times = [phase_seconds(cells, side, "recovery", names) for side in LAUNCHERS]
            rows.append([f"{ranks} ranks, recovery: {title}", *map(duration, times), ""])
        for kind in KINDS:
            whole = [to_first_step(cells, side, kind) for side in LAUNCHERS]
            head = f"**{ranks} ranks, {kind}, n = {len(whole[0])}**"
            rows.append([head, *map(spread, whole), speedup(cells, kind)])
        used = [spread([cell["jobs"][side]["cpu"] for cell in cells]) for side in LAUNCHERS]
        rows.append([f"{ranks} ranks: CPU time of a job", *used, ""])
    words = (
        f"The [job of the benchmark](ett.md#measured) with {result['tables']} tables loses a rank "
        f"{result['kills']} times. Both sides have the same\nstart bundle. Times are to the end of "
        f"the first step: medians (least - most), on {result['cpu_count']} cores.\nSides took "
        f"turns. All losses are the same to the bit.\n\n"
    )
    return words + table(["", *SHOWN.values(), "faster"], rows)
