"""The lines of a file, as text. Hand-written JSON: a line takes a third of json.dumps' time."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from fastplan.ett.identity import Identity

FORMAT = 1
_NAMES_KEPT = 1000

Sums = dict[str, list[int]]  # of short phases by name: how many, and their own nanoseconds

_quoted: dict[str, str] = {}


def quoted(text: str) -> str:
    """A JSON string in ASCII, on one line whatever the text holds."""
    found = _quoted.get(text)
    if found is None:
        if len(_quoted) >= _NAMES_KEPT:
            _quoted.clear()
        found = _quoted[text] = json.dumps(text)
    return found


def start(identity: Identity, t: int, wall: int, watched: int | None) -> str:
    """The first line. `t` and `watched` are the recorder's clock, `wall` the time of day at `t`."""
    head = {"e": "start", "format": FORMAT, "t": t, "wall": wall, "watched": watched}
    return json.dumps({**head, **asdict(identity)}) + "\n"


def begin(name: str, t: int, background: bool) -> str:
    return f'{{"e":"begin","name":{quoted(name)},"t":{t}{_background(background)}}}\n'


def phase(
    name: str, t: int, d: int, background: bool, sums: Sums | None, more: dict[str, Any] | None
) -> str:
    told = f',"more":{json.dumps(more)}' if more else ""
    return (
        f'{{"e":"phase","name":{quoted(name)},"t":{t},"d":{d}'
        f"{_background(background)}{_sums('in', sums)}{told}}}\n"
    )


def steps(
    numbers: tuple[int, int],
    times: tuple[int, int],
    wall: int,
    sums: tuple[Sums, Sums],
    mark: list[int],
) -> str:
    """Steps from and to a number, since when and for how long, and the short phases meanwhile."""
    marked = f',"mark":[{mark[0]},{mark[1]}]' if mark else ""
    return (
        f'{{"e":"steps","first":{numbers[0]},"last":{numbers[1]},"t":{times[0]},"d":{times[1]}'
        f',"wall":{wall}{_sums("in", sums[0])}{_sums("aside", sums[1])}{marked}}}\n'
    )


def rest(t: int, d: int, sums: Sums, aside: Sums) -> str:
    """Short phases after the last step."""
    return f'{{"e":"rest","t":{t},"d":{d}{_sums("in", sums)}{_sums("aside", aside)}}}\n'


def event(kind: str, t: int, **more: Any) -> str:
    """A line about one moment."""
    return json.dumps({"e": kind, "t": t, **more}) + "\n"


def _background(background: bool) -> str:
    return ',"background":true' if background else ""


def _sums(key: str, sums: Sums | None) -> str:
    if not sums:
        return ""
    parts = ",".join(f"{quoted(name)}:[{count},{d}]" for name, (count, d) in sums.items())
    return f',"{key}":{{{parts}}}'
