"""Cache hits and broadcasts of plans."""

from typing import Any

from bench.figures.markdown import size, table
from bench.text import duration, ratio

WAYS = {
    "TorchRec, full plan": ("torchrec", "plan"),
    "TorchRec, PlanLoader hit": ("torchrec", "loader"),
    "fastplan, cold plan": ("fastplan", "cold"),
    "fastplan, hit from a directory": ("fastplan", "directory"),
}


def hits(result: dict[str, Any]) -> str:
    cells = result["hits"]
    rows = []
    for name, (side, way) in WAYS.items():
        taken = [cell[side][way].get("median_seconds") for cell in cells]
        rows.append([name, *("not run" if each is None else duration(each) for each in taken)])
    return table(["", *(f"{cell['tables']} x {cell['ranks']}" for cell in cells)], rows)


def baselines(results: list[dict[str, Any]]) -> str:
    """Cells with both of TorchRec's times, for results with several TorchRec versions."""
    rows = []
    for result in results:
        for cell in result["hits"]:
            taken = [cell[side][way].get("median_seconds") for side, way in WAYS.values()]
            if None in taken:
                continue
            plan, loader, cold, hit = taken
            name = f"TorchRec {result['packages']['torchrec']}, {cell['tables']} x {cell['ranks']}"
            rows.append([name, *map(duration, taken), ratio(plan / cold), ratio(loader / hit)])
    return table(["", *WAYS, "plan / cold plan", "PlanLoader hit / hit"], rows)


def entries(result: dict[str, Any]) -> str:
    sizes = result["entries"]["sizes"]
    first, last = sizes[0], sizes[-1]
    growth = last["median_seconds"] / first["median_seconds"]
    return (
        f"With {last['entries']:,} entries in the directory, a hit takes {ratio(growth)} as long "
        f"as with {first['entries']}."
    )


def broadcast(result: dict[str, Any]) -> str:
    cells = result["broadcast"]
    sides = {"TorchRec, pickled plan": "torchrec", "fastplan, record": "fastplan"}
    rows = [[name, *(_sent(cell[side]) for cell in cells)] for name, side in sides.items()]
    titles = [f"{cell['ranks']} ranks" for cell in cells]
    return table([f"bytes, and time to receive, {cells[0]['tables']} tables", *titles], rows)


def _sent(found: dict[str, Any]) -> str:
    parts = ("describe", "rebuild")
    receive = sum(found[part]["median_seconds"] for part in parts if part in found)
    return f"{size(found['bytes'])}, {duration(receive)}"
