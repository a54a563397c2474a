"""Fits the constants of the hardware costs to measured times.

The formulas are only in the native core: this module calls it with changed constants. The fit
minimizes the logarithm of estimate / measurement: an estimate of twice the time counts as much as
one of half the time. Outliers lose weight. A weak prior keeps each constant near a given value,
such as another device's, unless the measurements say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastplan.engine import _native
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME, LinkSpeeds, core_constants

Floats = NDArray[np.float64]

_PRIOR = math.log(5)  # a constant that is 5 times the prior's value is one deviation away
_IDENTIFIED = 0.5 * _PRIOR  # the deviation that measurements must leave, at most
_LEAST = 2  # times that depend on a constant
_DEPENDS = 0.02  # a time depends on a constant that is this share of it
_VANISHES = 0.005  # a constant that is less of every time is 0
_COLLINEAR = 1e-2  # the part of a constant's effect that others don't have, at least
_SIGNIFICANT = 3.84  # twice the difference of likelihoods, at 95 %
_OUTLIER = 2.0  # deviations at which a time has half its weight
_LEAST_DEVIATION = 0.03  # of a time: repeated measurements differ that much
_STEP = 1e-4  # of finite differences, as a share
_ITERATIONS = 60
_NORMAL_95 = 1.96

# Orders of magnitude, for constants that have no prior.
_TYPICAL = {"ms": 0.02, "ns/id": 1.0, "efficiency": 0.5, "per group": 0.5}
_TYPICAL_BY_NAME = {"latency_per_rank": 0.001, "latency_per_doubling": 0.005}
# Constants of a first fit are 0 unless the measurements show them.
_ABSENT = frozenset({"latency_per_rank", "latency_per_doubling", "small_group"})


def first_prior() -> dict[str, float]:
    """Returns a prior without measurements: orders of magnitude, and no dependence on ranks."""
    return {
        name: 0.0 if constant.name in _ABSENT else _typical(name)
        for name, constant in CONSTANTS_BY_NAME.items()
    }


def _typical(name: str) -> float:
    constant = CONSTANTS_BY_NAME[name]
    return _TYPICAL_BY_NAME.get(constant.name, _TYPICAL[constant.unit])


class Times(Protocol):
    """Measured times of devices with the same links."""

    @property
    def links(self) -> LinkSpeeds: ...

    @property
    def ms(self) -> Floats: ...

    @property
    def configurations(self) -> Sequence[str]: ...

    def estimated(self, constants: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTimes:
    """Measured lookups.

    Attributes:
        links: Bandwidths of the device.
        columns: What each lookup does, as the core's `lookup_times` takes it.
        forward: 1 for times that have the forward pass, else 0.
        backward: 1 for times that have the backward pass, else 0.
        ms: The times.
        configurations: A name for each; times of one configuration are not independent.
    """

    links: LinkSpeeds
    columns: Mapping[str, NDArray[Any]]
    forward: Floats
    backward: Floats
    ms: Floats
    configurations: Sequence[str]

    def estimated(self, constants: Floats) -> Floats:
        """Returns the times that the core estimates, in ms."""
        forward, backward = _native.lookup_times(constants, self.columns)
        return self.forward * forward + self.backward * backward


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTimes:
    """Measured collectives.

    Attributes:
        links: Bandwidths of the device.
        columns: What each collective does, as the core's `exchange_times` takes it.
        ms: The times.
        configurations: A name for each; times of one configuration are not independent.
    """

    links: LinkSpeeds
    columns: Mapping[str, NDArray[Any]]
    ms: Floats
    configurations: Sequence[str]

    def estimated(self, constants: Floats) -> Floats:
        """Returns the times that the core estimates, in ms."""
        return _native.exchange_times(constants, self.columns)


class Fitted(NamedTuple):
    """A fitted constant with its 95 % interval, and the number of times that depend on it."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The result of a fit.

    Attributes:
        constants: The fitted constants, by full name.
        not_identified: Why the measurements can't tell other constants, by full name. These have
            the prior's value.
        values: All constants, fitted or from the prior.
    """

    constants: Mapping[str, Fitted]
    not_identified: Mapping[str, str]
    values: Mapping[str, float]


def estimate_times(times: Sequence[Times], values: Mapping[str, float]) -> Floats:
    """Returns what the core estimates for measured times, in their order.

    Args:
        times: The measurements.
        values: All constants, by full name.
    """
    parts = [each.estimated(np.array(core_constants(values, each.links))) for each in times]
    return np.concatenate(parts) if parts else np.empty(0)


def fit(
    times: Sequence[Times],
    names: Sequence[str],
    prior: Mapping[str, float],
    *,
    intervals: bool = True,
) -> Fit:
    """Fits constants to measured times.

    Args:
        times: The measurements.
        names: Full names of the constants to fit, the most important first: if measurements can't
            tell two constants apart, the later one keeps the prior's value.
        prior: A value for every constant.
        intervals: Compute intervals, by leaving out one configuration after the other.

    Returns:
        The constants that the measurements identify, and reasons for the others.

    Raises:
        ValueError: A time is not a positive number.
    """
    if not sum(len(each.ms) for each in times):
        reasons = dict.fromkeys(names, "no measurements")
        return Fit(constants={}, not_identified=reasons, values=dict(prior))
    problem = _Problem(times, prior)
    chosen, values, reasons = _identified(problem, list(names))
    counts = problem.dependent(chosen, values)
    deviations = problem.deviations([n for n in chosen if values[n] > 0], values)
    if intervals:
        jackknife = _jackknife(problem, chosen, values)
        deviations = {n: max(d, jackknife.get(n, 0.0)) for n, d in deviations.items()}
    constants = {}
    for name in chosen:
        value = values[name]
        spread = math.exp(_NORMAL_95 * min(deviations.get(name, 0.0), _PRIOR))
        constants[name] = Fitted(value, value / spread, value * spread, counts[name])
    return Fit(constants=constants, not_identified=reasons, values=values)


def _identified(
    problem: _Problem, names: list[str]
) -> tuple[list[str], dict[str, float], dict[str, str]]:
    """Leaves constants at the prior's value until the measurements identify all others."""
    reasons: dict[str, str] = {}
    for name, count in problem.possibly_dependent(names).items():
        if count < _LEAST:
            reasons[name] = "no measurements" if not count else f"measurements: only {count}"
    for name in problem.collinear([name for name in names if name not in reasons]):
        reasons[name] = "the measurements vary too little to tell it from the other constants"
    free = [name for name in names if name not in reasons]
    values = problem.solve(free, problem.prior)
    while True:
        deviations = problem.deviations(free, values)
        for name in reversed(free):
            if deviations[name] > _IDENTIFIED:
                fewer = [each for each in free if each != name]
                kept = problem.solve(fewer, {**values, name: problem.prior[name]})
                # A wide interval is still an answer if the prior's value fits worse.
                if problem.gain(values, kept) < _SIGNIFICANT:
                    reasons[name] = "the measurements can't tell it from the other constants"
                    free, values = fewer, kept
                    break
        else:
            return free, problem.rounded(free, values), reasons


def _jackknife(
    problem: _Problem, names: Sequence[str], values: Mapping[str, float]
) -> dict[str, float]:
    """Returns the deviations of logarithms, from fits without one configuration each."""
    free = [name for name in names if values[name] > 0]
    kinds = sorted(set(problem.configurations))
    if len(kinds) < 2 or not free:
        return {}
    found = []
    for kind in kinds:
        without = problem.part(np.array([c != kind for c in problem.configurations]))
        solved = without.solve(free, values)
        found.append([math.log(solved[name]) for name in free])
    logs = np.array(found)
    variance = (len(kinds) - 1) / len(kinds) * ((logs - logs.mean(0)) ** 2).sum(0)
    return dict(zip(free, np.sqrt(variance).tolist(), strict=True))


class _Problem:
    """Measurements and a prior."""

    def __init__(
        self,
        times: Sequence[Times],
        prior: Mapping[str, float],
        kept: NDArray[np.bool_] | None = None,
    ) -> None:
        self._times = times
        self.prior = prior
        self._ms = np.concatenate([each.ms for each in times])
        if not (np.isfinite(self._ms) & (self._ms > 0)).all():
            raise ValueError("`ms` must be positive numbers")
        self._kept = np.ones(len(self._ms), bool) if kept is None else kept
        self._measured = np.log(self._ms[self._kept])
        names = [name for each in times for name in each.configurations]
        self.configurations = [name for name, k in zip(names, self._kept, strict=True) if k]

    def part(self, kept: NDArray[np.bool_]) -> _Problem:
        """Returns the problem with some of the times."""
        every = self._kept.copy()
        every[self._kept] = kept
        return _Problem(self._times, self.prior, every)

    def solve(self, names: Sequence[str], start: Mapping[str, float]) -> dict[str, float]:
        """Returns all constants, with the best values of some."""
        values = dict(start)
        if not names:
            return values
        for name in names:
            values[name] = values[name] or self.prior[name] or _typical(name)
        centre = np.array([math.log(self.prior[n] or _typical(n)) for n in names])
        logs = np.array([math.log(values[name]) for name in names])
        damping = 1e-3
        residuals = self._residuals(values)
        scale = _scale(residuals)
        loss = self._loss(residuals, scale, logs - centre)
        for _ in range(_ITERATIONS):
            slopes = self._slopes(names, values)
            weights = _weights(residuals, scale)
            normal = (slopes.T * weights) @ slopes + np.eye(len(names)) / _PRIOR**2
            gradient = (slopes.T * weights) @ residuals + (logs - centre) / _PRIOR**2
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            tried = logs + np.clip(step, -1, 1)
            others = values | dict(zip(names, np.exp(tried).tolist(), strict=True))
            new = self._residuals(others)
            new_loss = self._loss(new, scale, tried - centre)
            if new_loss > loss:
                damping *= 10
                if damping > 1e8:
                    break
                continue
            done = np.abs(tried - logs).max() < 1e-6
            logs, values, residuals = tried, others, new
            damping = max(damping / 10, 1e-9)
            scale = _scale(residuals)
            loss = self._loss(residuals, scale, logs - centre)
            if done:
                break
        return values

    def gain(self, values: Mapping[str, float], others: Mapping[str, float]) -> float:
        """Returns how much better the first constants fit, as twice a difference of likelihoods."""
        own, theirs = self._residuals(values), self._residuals(others)
        scale = min(_scale(own), _scale(theirs))
        nothing = np.zeros(1)
        return self._loss(theirs, scale, nothing) - self._loss(own, scale, nothing)

    def rounded(self, names: Sequence[str], values: Mapping[str, float]) -> dict[str, float]:
        """Returns all constants; those that no time depends on are 0."""
        counts = self._dependent(names, values, _VANISHES)
        gone = [n for n in names if not counts[n] and CONSTANTS_BY_NAME[n].unit != "efficiency"]
        return {**values, **dict.fromkeys(gone, 0.0)}

    def deviations(self, names: Sequence[str], values: Mapping[str, float]) -> dict[str, float]:
        """Returns the deviations of the constants' logarithms: times and prior together."""
        if not names:
            return {}
        residuals = self._residuals(values)
        slopes = self._slopes(names, values)
        weights = _weights(residuals, _scale(residuals))
        normal = (slopes.T * weights) @ slopes + np.eye(len(names)) / _PRIOR**2
        found = np.sqrt(np.diag(np.linalg.inv(normal)))
        return dict(zip(names, found.tolist(), strict=True))

    def dependent(self, names: Sequence[str], values: Mapping[str, float]) -> dict[str, int]:
        """Returns how many times depend on each constant."""
        at = {**values, **{name: values[name] or _typical(name) for name in names}}
        return self._dependent(names, at, _DEPENDS)

    def possibly_dependent(self, names: Sequence[str]) -> dict[str, int]:
        """Returns how many times depend on each constant, if its time is as long as may be."""
        found: dict[str, int] = {}
        for name in names:
            value = self.prior[name] or _typical(name)
            is_rate = CONSTANTS_BY_NAME[name].unit == "efficiency"
            longer = value / math.exp(_PRIOR) if is_rate else value * math.exp(_PRIOR)
            found |= self._dependent([name], {**self.prior, name: longer}, _DEPENDS)
        return found

    def collinear(self, names: Sequence[str]) -> list[str]:
        """Returns the constants whose effect on all times is that of the ones before them.

        The dependence on ranks is one if all times have the same number of ranks.
        """
        at = {**self.prior, **{name: self.prior[name] or _typical(name) for name in names}}
        slopes = self._slopes(names, at)
        # Change of a time with the constant itself, not with its logarithm, over the time.
        effects = slopes * np.exp(self._estimated(at) - self._measured)[:, None]
        found: list[str] = []
        kept: list[Floats] = []
        for name, effect in zip(names, effects.T, strict=True):
            rest = effect.copy()
            for other in kept:
                rest -= (rest @ other) * other
            if np.linalg.norm(rest) <= _COLLINEAR * np.linalg.norm(effect):
                found.append(name)
            else:
                kept.append(rest / np.linalg.norm(rest))
        return found

    def _dependent(
        self, names: Sequence[str], values: Mapping[str, float], share: float
    ) -> dict[str, int]:
        slopes = np.abs(self._slopes(names, values))
        return dict(zip(names, (slopes > share).sum(0).tolist(), strict=True))

    def _estimated(self, values: Mapping[str, float]) -> Floats:
        found: Floats = np.log(estimate_times(self._times, values)[self._kept])
        return found

    def _residuals(self, values: Mapping[str, float]) -> Floats:
        found: Floats = self._estimated(values) - self._measured
        return found

    def _slopes(self, names: Sequence[str], values: Mapping[str, float]) -> Floats:
        """Returns d log(time) / d log(constant), by finite differences."""
        base = self._estimated(values)
        columns = [
            (self._estimated({**values, name: values[name] * (1 + _STEP)}) - base) / _STEP
            for name in names
        ]
        found: Floats = np.array(columns).T.reshape(len(base), len(names))
        return found

    def _loss(self, residuals: Floats, scale: float, from_prior: Floats) -> float:
        robust = (_OUTLIER**2 * np.log1p((residuals / (_OUTLIER * scale)) ** 2)).sum()
        return float(robust + ((from_prior / _PRIOR) ** 2).sum())


def _scale(residuals: Floats) -> float:
    """Returns the usual deviation of residuals, which outliers don't change."""
    return max(float(np.median(np.abs(residuals))) / 0.6745, _LEAST_DEVIATION)


def _weights(residuals: Floats, scale: float) -> Floats:
    """Returns the weights of Cauchy's loss: outliers count less the farther away they are."""
    found: Floats = 1 / (1 + (residuals / (_OUTLIER * scale)) ** 2) / scale**2
    return found
