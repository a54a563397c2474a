"""The cache benchmark's tables, and the figures derived from them."""

from typing import Any

from bench.cache_hits import COLD, STORES
from bench.text import duration, ratio, table

Record = dict[str, Any]
NOTHING = "-"


def report(result: Record) -> str:
    """Everything that was measured, as text."""
    parts = [
        _hits(result["hits"]),
        "\n".join(_hit_notes(result)),
        _phases(result["hits"]),
        _broadcast(result["broadcast"]),
        "describe: a rank reads its own tables, before rank 0 plans; receive: describe and rebuild."
        if result["broadcast"]
        else "",
        _entries(result["entries"]),
        "\n".join(_check_line(check) for check in result["checks"]),
        "\n".join(_differences(result)),
    ]
    return "\n\n".join(part for part in parts if part)


def derived(result: Record) -> list[Record]:
    """A list of {text, value, unit, goal, at_least, holds}, each only if its cells were run."""
    hits = {(cell["tables"], cell["ranks"]): cell for cell in result["hits"]}
    sent = {(cell["tables"], cell["ranks"]): cell for cell in result["broadcast"]}
    checks = []
    if cell := hits.get((100, 16)):
        loader = cell["torchrec"]["loader"].get("median_seconds")
        warm = cell["fastplan"]["directory"]["median_seconds"]
        if loader:
            text = "TorchRec's PlanLoader hit at 100 x 16 relative to fastplan's from a directory"
            checks.append(_check(text, loader / warm, "x", 500, at_least=True))
    if cell := hits.get((1000, 64)):
        cpu = cell["fastplan"]["directory"]["median_cpu_seconds"]
        text = "fastplan's hit from a directory at 1000 x 64, CPU"
        checks.append(_check(text, cpu * 1e3, "ms", 100, at_least=False))
    sizes = {size["entries"]: size for size in (result["entries"] or {"sizes": []})["sizes"]}
    if 10 in sizes and 100_000 in sizes:
        quotient = sizes[100_000]["median_seconds"] / sizes[10]["median_seconds"]
        text = "hit among 100,000 entries relative to 10"
        checks.append(_check(text, quotient, "x", 2, at_least=False))
    if cell := sent.get((1000, 1024)):
        text = "fastplan's broadcast at 1000 x 1024"
        checks.append(_check(text, cell["fastplan"]["bytes"], "bytes", 20_000, at_least=False))
    return checks


def all_differences(result: Record) -> list[str]:
    """Lists plans that differ from the expected one, and hits that were misses."""
    lines = []
    entries = [result["entries"]] if result["entries"] else []
    for part in (*result["hits"], *result["broadcast"], *entries):
        lines += [f"{_size(part)}: {line}" for line in part["differences"]]
    return lines


def _check(text: str, value: float, unit: str, goal: float, *, at_least: bool) -> Record:
    holds = value >= goal if at_least else value <= goal
    return {
        "text": text,
        "value": value,
        "unit": unit,
        "goal": goal,
        "at_least": at_least,
        "holds": holds,
    }


def _check_line(check: Record) -> str:
    value, unit = check["value"], check["unit"]
    shown = ratio(value) if unit == "x" else f"{value:,.{0 if unit == 'bytes' else 1}f} {unit}"
    bound = "at least" if check["at_least"] else "at most"
    verdict = "holds" if check["holds"] else "DOES NOT HOLD"
    return f"{check['text']}: {shown} ({bound} {check['goal']:,} {unit}: {verdict})"


def _size(part: Record) -> str:
    return f"{part['tables']} x {part['ranks']}"


def _hits(cells: list[Record]) -> str:
    header = ["tables x ranks", "plan", "median", "n", "min", "max", "CPU"]
    header += ["TorchRec's plan", "its hit", "cold plan"]
    rows = []
    for cell in cells:
        theirs, ours = cell["torchrec"], cell["fastplan"]
        references = (theirs["plan"], theirs["loader"], ours[COLD])
        rows += [
            [_size(cell), "TorchRec, full plan", *_time_cells(theirs["plan"], ())],
            [_size(cell), "TorchRec, PlanLoader hit", *_time_cells(theirs["loader"], ())],
            [_size(cell), "fastplan, cold plan", *_time_cells(ours[COLD], references[:2])],
        ]
        rows += [
            [_size(cell), f"fastplan, hit from {store}", *_time_cells(ours[store], references)]
            for store in STORES
        ]
    return table(header, rows, left=(0, 1)) if rows else ""


def _time_cells(taken: Record, references: tuple[Record, ...]) -> list[str]:
    """Median, n, spread, CPU, and up to three references relative to it."""
    if taken["seconds"] is None:
        return [f"not run (about {duration(taken['expected_seconds'])})", *[NOTHING] * 7]
    median = taken["median_seconds"]
    ratios = [
        NOTHING if other["seconds"] is None else ratio(other["median_seconds"] / median)
        for other in references
    ]
    return [
        duration(median),
        *_spread(taken),
        duration(taken["median_cpu_seconds"]) if "median_cpu_seconds" in taken else NOTHING,
        *ratios,
        *[NOTHING] * (3 - len(ratios)),
    ]


def _spread(taken: Record) -> list[str]:
    seconds = taken["seconds"]
    return [str(len(seconds)), duration(min(seconds)), duration(max(seconds))]


def _hit_notes(result: Record) -> list[str]:
    if not result["hits"]:
        return []
    lines = [
        "The last three columns: TorchRec's full plan, its PlanLoader hit and fastplan's cold plan "
        "relative to this row.",
        "Fresh planners each time; every plan is compared with fastplan's cold plan.",
        *(
            f"{_size(cell)}: {cell['shards']:,} shards, an entry of {cell['entry_bytes']:,} bytes."
            for cell in result["hits"]
        ),
    ]
    sides = [side for cell in result["hits"] for side in cell["torchrec"].values()]
    if any(side["seconds"] is None for side in sides):
        lines.append(
            f"not run: expected to take over {duration(result['torchrec_limit_seconds'])} "
            "(--torchrec-limit); the time in brackets is an estimate, not a measurement."
        )
    return lines


def _phases(cells: list[Record]) -> str:
    taken = [
        (_size(cell), way, cell["fastplan"][way]["phases"])
        for cell in cells
        for way in (COLD, *STORES)
    ]
    names = list(dict.fromkeys(name for *_, phases in taken for name in phases))
    rows = [
        [size, way, *(duration(phases[name]) if name in phases else NOTHING for name in names)]
        for size, way, phases in taken
    ]
    return table(["fastplan by phase", "", *names], rows, left=(0, 1)) if rows else ""


def _broadcast(cells: list[Record]) -> str:
    header = ["tables x ranks", "sent", "bytes", "n", "pack", "describe", "rebuild", "receive"]
    header += ["min", "max", "ratio of bytes", "of receive"]
    rows = []
    for cell in cells:
        theirs, ours = cell["torchrec"], cell["fastplan"]
        their_times, our_times = _receive_times(theirs), _receive_times(ours)
        ratios = [
            ratio(theirs["bytes"] / ours["bytes"]),
            ratio(their_times[0] / our_times[0]),
        ]
        rows += [
            [_size(cell), "TorchRec, pickled plan", *_sent_cells(theirs, their_times), "", ""],
            [_size(cell), "fastplan, record", *_sent_cells(ours, our_times), *ratios],
        ]
    return table(header, rows, left=(0, 1)) if rows else ""


def _receive_times(side: Record) -> tuple[float, float, float]:
    """Median, least and most seconds until the receiving rank has the plan."""
    parts = [side[part] for part in ("describe", "rebuild") if part in side]
    sums = [sum(each) for each in zip(*(part["seconds"] for part in parts), strict=True)]
    return sum(part["median_seconds"] for part in parts), min(sums), max(sums)


def _sent_cells(side: Record, receive: tuple[float, float, float]) -> list[str]:
    parts = ("pack", "describe", "rebuild")
    medians = [duration(side[p]["median_seconds"]) if p in side else NOTHING for p in parts]
    count = str(len(side["pack"]["seconds"]))
    return [f"{side['bytes']:,}", count, *medians, *map(duration, receive)]


def _entries(part: Record | None) -> str:
    if part is None:
        return ""
    first = part["sizes"][0]["median_seconds"]
    rows = [
        [
            f"{size['entries']:,}",
            duration(size["median_seconds"]),
            *_spread(size),
            duration(size["median_cpu_seconds"]),
            duration(size["phases"]["cache"]),
            ratio(size["median_seconds"] / first),
        ]
        for size in part["sizes"]
    ]
    header = [f"entries, {_size(part)}", "hit", "n", "min", "max", "CPU", "cache phase", "ratio"]
    return table(header, rows, left=())


def _differences(result: Record) -> list[str]:
    lines = all_differences(result)
    if not lines:
        return ["All plans are identical."]
    return [f"{len(lines)} DIFFERENCES:", *lines[:20]]
