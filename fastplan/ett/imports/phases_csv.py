"""CSV of phases: a line per phase of a job, with `seconds`, or with `begin` and `end`.

    job,phase,seconds,team
    ads-7,plan,42.5,ads
    ads-7,training,36000,ads

`job` and `phase` are required. Times are seconds. Further columns are labels. Known: what the file
says. Phases count one after the other if there is no `begin`, so they must not overlap then; with
`begin` and `end`, the one that begins last wins. The phase `training` is training, `lost` is lost
work, and each phase `down` or `restart` is a failure. The phases before the first `training` are
the start.
"""

from __future__ import annotations

import csv
import io
import math

from fastplan.ett.fleet.jobs import FleetJob, usable_time
from fastplan.ett.labels import clean_labels
from fastplan.ett.phases import Piece, flatten, totals

_FIXED = {"job", "phase", "seconds", "begin", "end"}
_FAILURES = ("down", "restart")
_LONGEST_NAME = 200
_MOST_SECONDS = 1e10
_LONGEST_HEADER = 1 << 16


def is_header(head: bytes) -> bool:
    """Whether the first line names the columns of phases."""
    line = head[:_LONGEST_HEADER].splitlines()[0] if head.strip() else b""
    names = {name.strip().strip('"') for name in line.decode("utf-8-sig", "replace").split(",")}
    return {"job", "phase"} <= names and ("seconds" in names or {"begin", "end"} <= names)


def read_jobs(place: str, data: bytes) -> list[FleetJob]:
    """Returns the jobs of a file, in the order in which they first appear."""
    # newline=None: a lone carriage return ends a line, too, instead of being an error
    text = io.StringIO(data.decode("utf-8-sig", "replace"), newline=None)
    rows = csv.DictReader(text)
    pieces: dict[str, list[Piece]] = {}
    labels: dict[str, dict[str, str]] = {}
    timed: dict[str, bool] = {}
    skipped = 0
    try:
        for row in rows:
            name, phase = row.get("job"), (row.get("phase") or "")[:_LONGEST_NAME]
            span = _span(row)
            if not name or not phase or span is None:
                skipped += 1
                continue
            name = name[:_LONGEST_NAME]
            own = pieces.setdefault(name, [])
            begin, end, known = span
            timed[name] = timed.get(name, True) and known
            done = 0 if known or not own else own[-1].end
            own.append(Piece(done + begin, done + end, phase))
            given = {key: text for key, text in row.items() if key and key not in _FIXED and text}
            labels.setdefault(name, {}).update(clean_labels(given))
    except csv.Error:
        skipped += 1
    notes = [f"{skipped} damaged lines are skipped"] if skipped else []
    return [
        _job(place, number, name, own, labels[name], timed[name], notes)
        for number, (name, own) in enumerate(pieces.items(), 1)
    ]


def _span(row: dict[str, str]) -> tuple[int, int, bool] | None:
    """Begin and end of a phase in nanoseconds, and whether they are times of day."""
    try:
        if row.get("begin") and row.get("end"):
            begin, end, known = float(row["begin"]), float(row["end"]), True
        else:
            begin, end, known = 0.0, float(row["seconds"]), False
    except (KeyError, TypeError, ValueError):
        return None
    if not (math.isfinite(begin) and math.isfinite(end) and 0 <= begin <= end < _MOST_SECONDS):
        return None
    return round(begin * 1e9), round(end * 1e9), known


def _job(
    place: str,
    number: int,
    name: str,
    given: list[Piece],
    labels: dict[str, str],
    timed: bool,
    notes: list[str],
) -> FleetJob:
    pieces = [Piece(*span) for span in flatten(sorted(given))] if timed else given
    whole = {key: took / 1e9 for key, took in totals(pieces).items()}
    begin, end = (
        min(p.begin for p in pieces) if pieces else 0,
        max((p.end for p in pieces), default=0),
    )
    first = next((p.begin for p in pieces if p.name == "training"), None)
    seconds = (end - begin) / 1e9
    start = [p for p in pieces if first is not None and p.begin < first]
    trained = whole.get("training", 0.0)
    failures = sum(piece.name in _FAILURES for piece in pieces)
    return FleetJob(
        source=place if number == 1 else f"{place}#{number}",
        place=place,
        kind="csv",
        job=name,
        begin=usable_time(begin / 1e9) if timed else None,
        seconds=seconds,
        time_to_start_s=None if first is None else (first - begin) / 1e9,
        train_s=trained,
        ett=trained / seconds if seconds else 0.0,
        failures=failures,
        attempts=failures + 1,
        phases=whole,
        start={key: took / 1e9 for key, took in totals(start).items()},
        labels=labels,
        notes=notes,
    )
