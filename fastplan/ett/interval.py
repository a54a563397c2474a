"""The checkpoint interval that wastes least, by Young, by Daly, and exactly.

A job saves a checkpoint after every T seconds of training, which blocks it for C seconds. It fails
at rate 1 / M (exponential, M is the mean time between failures), then takes R seconds until it
trains again, and repeats what it did since the last checkpoint. A failure may also happen while it
saves or recovers. Then T seconds of training take, on average,

    E(T) = M exp(R / M) (exp((T + C) / M) - 1)

which is the sum over all numbers of failures (Daly 2006, eq. 13). The wasted share is 1 - T / E(T).
It is least where exp((T + C) / M) (1 - T / M) = 1; R does not matter for that. The approximations
are Young's T = sqrt(2 C M), and Daly's with two more terms of the series.

An asynchronous save blocks only for C, but can be restored only after its upload, U seconds later.
A failure then loses U seconds more, so U counts like R, and T is at least U.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from fastplan.ett.arithmetic import Report

_CURVE = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / math.sqrt(2), 1, math.sqrt(2), 2, 4, 8, 16)
_HALVINGS = 200  # enough for every bit of a float
_MOST_EXPONENT = 700.0  # beyond that, a job practically never gets there


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureModel:
    """What an interval depends on. Times are in seconds.

    Raises:
        ValueError: if a number is negative or not finite, or one that must be positive is 0.
    """

    save: float  # C: training is blocked for each checkpoint
    between_failures: float  # M: mean time between failures
    recover: float = 0.0  # R: from a failure to training
    upload: float = 0.0  # U: from the end of C until a checkpoint can be restored
    interval: float | None = None  # the present T, to compare with
    step: float | None = None  # seconds per step, to show intervals in steps

    def __post_init__(self) -> None:
        for name in ("save", "between_failures", "recover", "upload", "interval", "step"):
            value = getattr(self, name)
            needed = name in ("save", "between_failures", "interval", "step")
            if value is None and name in ("interval", "step"):
                continue
            if not math.isfinite(value) or value < 0 or (needed and value == 0):
                least = "more than 0" if needed else "at least 0"
                raise ValueError(f"`{name}` must be a number of {least}, not {value}")

    def seconds_per(self, interval: float) -> float:
        """Returns E(T): how long T seconds of training take, on average."""
        mean = self.between_failures
        lost, segment = (self.recover + self.upload) / mean, (interval + self.save) / mean
        if lost + segment > _MOST_EXPONENT:
            return math.inf
        return mean * math.exp(lost) * math.expm1(segment)

    def waste(self, interval: float) -> float:
        """Returns the share of time that is not training on new data, from 0 to 1."""
        return 1.0 - interval / self.seconds_per(interval)

    def parts(self, interval: float) -> dict[str, float]:
        """Returns the wasted share by cause: saving, recovering, and work that is repeated."""
        whole = self.seconds_per(interval)
        if math.isinf(whole):
            return {"saving": 0.0, "recovering": 0.0, "repeating": 1.0}
        mean, segment = self.between_failures, interval + self.save
        failures = math.expm1(segment / mean)  # per segment that is saved at last
        after = self.recover + self.upload
        lost = failures * mean * math.expm1(after / mean)  # recoveries may fail as well
        recovering = lost * self.recover / after if after else 0.0
        repeating = max(0.0, failures * mean - segment) + lost - recovering
        return {
            "saving": self.save / whole,
            "recovering": recovering / whole,
            "repeating": repeating / whole,
        }

    @property
    def young(self) -> float:
        """Young's interval, sqrt(2 C M)."""
        return math.sqrt(2 * self.save * self.between_failures)

    @property
    def daly(self) -> float:
        """Daly's interval, with two more terms; M if a save takes longer than 2 M."""
        if self.save >= 2 * self.between_failures:
            return self.between_failures
        ratio = math.sqrt(self.save / (2 * self.between_failures))
        return self.young * (1 + ratio / 3 + ratio * ratio / 9) - self.save

    @property
    def best(self) -> float:
        """The interval that wastes least by E(T), and at least the time of an upload."""
        return max(self._best_without_upload(), self.upload)

    def _best_without_upload(self) -> float:
        """Where exp(x + c) (1 - x) = 1, by bisection: the left side falls from x = 0 to 1."""
        saved = self.save / self.between_failures
        if saved > _MOST_EXPONENT:
            return self.between_failures
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            # With logarithms, because the product of a huge and a tiny number would overflow.
            if middle < 1.0 and middle + saved + math.log1p(-middle) > 0:
                low = middle
            else:
                high = middle
        return self.between_failures * (low + high) / 2

    def curve(self) -> list[float]:
        """Returns intervals around the best one, and the present one, in order."""
        # Nothing below the time of an upload: the next save would have to wait.
        found = {max(self.best * time, self.upload) for time in _CURVE}
        if self.interval is not None:
            found.add(self.interval)
        return sorted(found)


def model_of_job(report: Report) -> dict[str, float]:
    """Returns what a recorded job says about its failures and checkpoints, by FailureModel's names.

    What was not recorded is missing: there is no time between failures without a failure.
    """
    found: dict[str, float] = {}
    saves = report.checkpoints
    if saves.count and saves.blocking:
        found["save"] = saves.blocking / saves.count
        found["upload"] = saves.upload / saves.count
        found["interval"] = (report.productive + report.lost) / saves.count
    if report.failures:
        found["between_failures"] = report.seconds / report.failures
    if report.times_to_recover:
        found["recover"] = sum(report.times_to_recover) / len(report.times_to_recover)
    if report.steps + report.lost_steps:
        found["step"] = (report.productive + report.lost) / (report.steps + report.lost_steps)
    return {name: value for name, value in found.items() if value > 0}


def interval_json(model: FailureModel) -> dict[str, Any]:
    """Returns the intervals and the curve as JSON types. Times are in seconds."""
    return {
        "model": asdict(model),
        "young": model.young,
        "daly": model.daly,
        "best": model.best,
        "best_steps": None if model.step is None else max(1, round(model.best / model.step)),
        "waste": model.waste(model.best),
        "waste_now": None if model.interval is None else model.waste(model.interval),
        "curve": [
            {"interval": each, "waste": model.waste(each), **model.parts(each)}
            for each in model.curve()
        ],
    }
