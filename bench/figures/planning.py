"""Times of whole plans for the README."""

from typing import Any

from bench.figures.markdown import table
from bench.text import duration, ratio

SHOWN = ((26, 8), (100, 16), (100, 64), (1000, 64), (1000, 1024), (10000, 1024))


def times(result: dict[str, Any]) -> str:
    cells = {(cell["tables"], cell["ranks"]): cell for cell in result["cells"]}
    rows = [
        [
            f"{tables} x {ranks}{' (Criteo)' if cells[tables, ranks]['model'] == 'criteo' else ''}",
            _torchrec(cells[tables, ranks]["torchrec"]),
            duration(cells[tables, ranks]["fastplan"]["median_seconds"]),
            "" if cells[tables, ranks]["ratio"] is None else ratio(cells[tables, ranks]["ratio"]),
        ]
        for tables, ranks in SHOWN
        if (tables, ranks) in cells
    ]
    version = result["packages"]["torchrec"]
    return table(["tables x ranks", f"TorchRec {version}", "fastplan", "ratio"], rows)


def _torchrec(found: dict[str, Any]) -> str:
    if found["seconds"] is not None:
        return duration(found["seconds"])
    if found["enumerate_seconds"] is not None:
        return f"enumerate() alone: {duration(found['enumerate_seconds'])}"
    return "not run"
