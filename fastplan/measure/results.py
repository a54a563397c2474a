"""Reads the folder of a measurement."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from fastplan.files.document import open_regular
from fastplan.measure.prepare import FORMAT, VERSION
from fastplan.measure.settings import FAILURES, PARTS, ROUNDS, RUN, MeasureError
from fastplan.measure.statistics import Floats, MedianSpread, drift
from fastplan.model.limits import MOST_BATCH, MOST_NUMBER, MOST_RANKS, MOST_TEXT

T = TypeVar("T")
# Far more than the longest measurement has, and it fits in memory.
_MOST_BYTES = 1 << 30
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_NUMBER)]
Bytes = Annotated[int, Meta(ge=0)]


class _Entry(Struct, frozen=True, kw_only=True):
    """A plan in run.json."""

    label: Text
    layout: Text
    rating: Annotated[float, Meta(ge=0, le=MOST_NUMBER)] | None
    memory: tuple[Bytes, ...] | None


class _About(Struct, frozen=True, kw_only=True):
    """What run.json must have."""

    model: Text
    device: Text
    ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS)]
    batch_size: Annotated[int, Meta(ge=1, le=MOST_BATCH)]
    scale_rows: Annotated[int, Meta(ge=1)]
    plans: tuple[_Entry, ...]


class _Rank(Struct, frozen=True, kw_only=True):
    """What a rank measured in a round."""

    device: Text
    steps: Annotated[tuple[Seconds, ...], Meta(min_length=1)]
    parts: dict[str, Annotated[tuple[Seconds, ...], Meta(min_length=1)]]
    peak_memory: Bytes


class _Round(Struct, frozen=True, kw_only=True):
    """A line of rounds.jsonl."""

    plan: int
    round: int
    ranks: Annotated[tuple[_Rank, ...], Meta(min_length=1)]


class _Failure(Struct, frozen=True, kw_only=True):
    """A line of failures.jsonl."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRuns:
    """The measurements of one plan, in seconds and bytes.

    Attributes:
        label: The plan's label.
        layout: The key of the layout, see `layout_key`.
        rating: Estimated milliseconds at the time of the measurement.
        estimated_memory: By rank, for the measured tables.
        steps: By round: the slowest rank of each step.
        rank_parts: By part: the median of each rank.
        part_rounds: By part and round in which parts were timed: the slowest rank.
        peak_memory: By rank.
    """

    label: str
    layout: str
    rating: float | None
    estimated_memory: tuple[int, ...] | None
    steps: tuple[Floats, ...]
    rank_parts: dict[str, tuple[float, ...]]
    part_rounds: dict[str, tuple[Floats, ...]]
    peak_memory: tuple[int, ...]

    @property
    def step(self) -> MedianSpread:
        """Seconds of a whole step."""
        return MedianSpread.of(np.concatenate(self.steps))

    def part(self, name: str) -> MedianSpread:
        """Returns the seconds of a part on its slowest rank."""
        return MedianSpread.of(np.concatenate(self.part_rounds[name]))

    @property
    def rated(self) -> tuple[Floats, ...]:
        """Seconds by round of the parts in a rating: all except the distribution of inputs."""
        names = [name for name in PARTS if name != "input_dist"]
        rounds = zip(*(self.part_rounds[name] for name in names), strict=True)
        return tuple(np.sum(parts, axis=0) for parts in rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """A measurement.

    Attributes:
        about: The content of run.json.
        plans: The measured plans.
        failures: The plans that could not be measured, with the reasons.
        devices: The names of the devices.
    """

    about: dict[str, Any]
    plans: tuple[PlanRuns, ...]
    failures: tuple[str, ...]
    devices: tuple[str, ...]

    @property
    def scale_rows(self) -> int:
        """The factor that the rows of tables were divided by."""
        return int(self.about["scale_rows"])

    @property
    def drift(self) -> float:
        """How much the machine changed between rounds, as a fraction."""
        return drift([plan.steps for plan in self.plans]) if self.plans else 0.0


def read_runs(folder: str | os.PathLike[str]) -> Runs:
    """Reads the measurement in a folder.

    Args:
        folder: The folder that `measure` has created.

    Raises:
        MeasureError: There is no measurement, or it can't be read.
    """
    where = Path(folder)
    try:
        data = _bytes(where / RUN)
        about = msgspec.json.decode(data, type=dict[str, Any])
        kind = about["format"], about["version"]
    except (OSError, ValueError, KeyError, RecursionError) as error:
        way_out = f"`fastplan measure -o {where}` creates one"
        if where.is_file():
            way_out = "pass the folder that `fastplan measure -o` wrote"
        raise MeasureError(f"{where} has no measurement; {way_out}") from error
    if kind != (FORMAT, VERSION):
        raise MeasureError(
            f"{where}: {kind[0]} version {kind[1]} is not {FORMAT} version {VERSION}"
        )
    entries = _decoded(data, _About, where / RUN).plans
    lines: dict[int, list[_Round]] = {}
    for content in _lines(where / ROUNDS, _Round):
        lines.setdefault(content.plan, []).append(content)
    try:
        plans = tuple(
            _plan(entry, lines[number]) for number, entry in enumerate(entries) if number in lines
        )
        devices = {rank.device for own in lines.values() for rank in own[0].ranks}
    except (KeyError, ValueError, IndexError) as error:
        raise MeasureError(f"{where / ROUNDS} is damaged: {error!r}") from error
    failures = tuple(content.text for content in _lines(where / FAILURES, _Failure))
    return Runs(about=about, plans=plans, failures=failures, devices=tuple(sorted(devices)))


def _bytes(file: Path) -> bytes:
    with open_regular(file) as stream:
        data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(file))
    return data


def _lines(file: Path, kind: type[T]) -> list[T]:
    """Returns the objects of a file; skips incomplete lines."""
    try:
        lines = _bytes(file).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MeasureError(f"{file} can't be read: {error.strerror}") from error
    return [_decoded(line, kind, file) for line in lines if _is_complete(line)]


def _is_complete(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return False
    return True


def _decoded(data: bytes, kind: type[T], file: Path) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        raise MeasureError(f"{file} is damaged: {error}") from error


def _plan(entry: _Entry, rounds: list[_Round]) -> PlanRuns:
    rounds = sorted(rounds, key=lambda content: content.round)
    ranks = len(rounds[0].ranks)
    timed = [content for content in rounds if content.ranks[0].parts]
    return PlanRuns(
        label=entry.label,
        layout=entry.layout,
        rating=entry.rating,
        estimated_memory=entry.memory,
        steps=tuple(_slowest([rank.steps for rank in content.ranks]) for content in rounds),
        rank_parts={
            part: tuple(
                float(np.median(np.concatenate([own.ranks[i].parts[part] for own in timed])))
                for i in range(ranks)
            )
            for part in PARTS
        },
        part_rounds={
            part: tuple(_slowest([rank.parts[part] for rank in own.ranks]) for own in timed)
            for part in PARTS
        },
        peak_memory=tuple(max(own.ranks[i].peak_memory for own in rounds) for i in range(ranks)),
    )


def _slowest(ranks: list[tuple[float, ...]]) -> Floats:
    """Returns the time of each repetition on the slowest rank."""
    found: Floats = np.array(ranks, np.float64).max(axis=0)
    return found
