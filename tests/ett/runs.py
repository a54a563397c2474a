"""Records of invented jobs, written by the recorder with a clock that tests set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastplan.ett.events import Frame
from fastplan.ett.journal import Identity, Journal
from fastplan.ett.recorder import Recorder

EPOCH = 1_700_000_000  # seconds
SECOND = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


class Rank:
    """One process. Times are seconds since the job's begin, whatever its host's clock says."""

    def __init__(
        self,
        directory: Path,
        rank: int = 0,
        *,
        world: int = 1,
        attempt: int = 0,
        run: str = "job",
        host: str = "a",
        begin: float = 0.0,
        recorded: float | None = None,
        launched: float | None = None,
        skew: float = 0.0,
        watched: float | None = None,
    ) -> None:
        # Every host has a monotonic clock of its own, and a time of day that may be wrong.
        self._booted = 1000 * (1 + sum(map(ord, host)))
        self._skew = skew
        self._now = begin if recorded is None else recorded
        identity = Identity(
            run=run,
            attempt=attempt,
            rank=rank,
            world=world,
            host=host,
            boot=f"boot of {host}",
            pid=1000 + rank,
            launched=None if launched is None else ns(EPOCH + launched + skew),
            process=self._monotonic(begin),
            labels={},
        )
        self.recorder = Recorder(
            Journal(str(directory), identity),
            identity,
            watched=None if watched is None else self._monotonic(watched),
            clock=lambda: self._monotonic(self._now),
            wall=lambda: ns(EPOCH + self._now + self._skew),
        )
        self.path = Path(self.recorder.path)

    def _monotonic(self, seconds: float) -> int:
        return ns(self._booted + seconds)

    def to(self, seconds: float) -> Rank:
        """Lets the time be this."""
        assert seconds >= self._now
        self._now = seconds
        return self

    def wait(self, seconds: float) -> Rank:
        return self.to(self._now + seconds)

    @contextmanager
    def phase(self, name: str, seconds: float = 0.0, **more: Any) -> Iterator[None]:
        """A phase that lasts, besides what is done in it."""
        frame = Frame(name, more or None)
        self.recorder.begin(frame, True)
        yield
        self.wait(seconds)
        self.recorder.end(frame)

    def do(self, name: str, seconds: float, **more: Any) -> Rank:
        with self.phase(name, seconds, **more):
            pass
        return self

    def short(self, name: str, seconds: float) -> Rank:
        """A phase that nobody announces."""
        frame = Frame(name)
        self.recorder.begin(frame)
        self.wait(seconds)
        self.recorder.end(frame)
        return self

    def steps(self, first: int, last: int, each: float) -> Rank:
        for number in range(first, last + 1):
            self.wait(each)
            self.recorder.step(number)
        return self

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def entries(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [entry for entry in found if kind is None or entry["e"] == kind]
