"""Tells whether two plans differ, given that they took turns in the same rounds.

Two plans are different only if both tests say so:
- Wilcoxon's signed-rank test on the rounds, exact and two-sided: in each round the steps of both
  plans are compared with each other, so what slows the machine for rounds counts for both.
- The difference is larger than what the machine's own noise does to medians of so many rounds. That
  noise is the change of one plan between rounds, without what both plans of a round have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fastplan.measure.statistics import Floats

ALPHA = 0.01  # the chance that one of the tests calls equal plans different
FEWEST_ROUNDS = 8  # fewer can't have a p below ALPHA: 2 / 2**7 is 0.016
VISIBLE = 0.10  # a difference that a measurement should be able to show
_DEVIATION = 1.4826  # a normal deviation over the median of absolute deviations
_OF_MEDIAN = math.sqrt(math.pi / 2)  # the standard error of a median over that of a mean
_ERRORS = 2.0  # standard errors that a difference must exceed

Outcome = Literal["faster", "slower", "same", "unclear"]


class Paired(NamedTuple):
    """How the second plan compares with the first one.

    Attributes:
        outcome: "faster" or "slower"; "same" if no difference was found and one of VISIBLE would
            have been; "unclear" if the machine is too noisy, or there are too few rounds.
        difference: The second over the first, minus 1: the median over rounds.
        p: Of Wilcoxon's test.
        noise: How much one plan changes between rounds, as a fraction; what changes both plans of
            a round is left out.
        resolution: The smallest difference that these rounds could show, as a fraction.
        rounds: The number of rounds that have both plans.
    """

    outcome: Outcome
    difference: float
    p: float
    noise: float
    resolution: float
    rounds: int

    @property
    def different(self) -> bool:
        """Whether the plans differ."""
        return self.outcome in ("faster", "slower")

    @property
    def why_unclear(self) -> str:
        """Why nothing can be said, for people."""
        if self.rounds < FEWEST_ROUNDS:
            return f"{self.rounds} rounds are too few, {FEWEST_ROUNDS} are needed"
        return (
            f"too noisy to tell: one plan changes by {100 * self.noise:.0f} % between rounds, so "
            f"{self.rounds} rounds show differences of {100 * self.resolution:.0f} % and more"
        )


def compare_rounds(first: Sequence[Floats], second: Sequence[Floats]) -> Paired:
    """Compares two plans that were measured in the same rounds.

    Args:
        first: Seconds of the first plan, by round.
        second: The same for the second plan. Rounds that one of them lacks, the last ones, are
            left out.
    """
    n = min(len(first), len(second))
    one, other = (np.log([float(np.median(own)) for own in plan[:n]]) for plan in (first, second))
    if n < 2:
        difference = float(np.expm1(np.median(other - one))) if n else 0.0
        return Paired("unclear", difference, 1.0, math.inf, math.inf, n)
    differences = other - one
    middle = float(np.median(differences))
    # Both plans have the same noise, so it is the difference's deviation over sqrt(2).
    deviation = _DEVIATION * float(np.median(np.abs(differences - middle)))
    explained = math.expm1(_ERRORS * _OF_MEDIAN * deviation / math.sqrt(n))
    p = signed_rank_p(differences)
    outcome: Outcome = "same"
    if p <= ALPHA and math.expm1(abs(middle)) > explained:
        outcome = "slower" if middle > 0 else "faster"
    elif n < FEWEST_ROUNDS or explained > VISIBLE:
        outcome = "unclear"
    noise = math.expm1(deviation / math.sqrt(2))
    return Paired(outcome, math.expm1(middle), p, noise, explained, n)


def signed_rank_p(differences: Floats) -> float:
    """Returns the two-sided p of Wilcoxon's signed-rank test, exact also with ties.

    Zeros are left out. Each of the 2**n ways to give the differences signs is equally likely:
        p = share of them with a sum of positive ranks at least as far from the middle
    """
    found = differences[differences != 0]
    n = len(found)
    if n == 0:
        return 1.0
    size = np.abs(found)
    smaller = (size[None, :] < size[:, None]).sum(axis=1)
    equal = (size[None, :] == size[:, None]).sum(axis=1)
    doubled = 2 * smaller + equal + 1  # twice the mean rank, an integer
    total = int(doubled.sum())
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in doubled.tolist():
        ways[rank:] = (ways[rank:] + ways[: total + 1 - rank]) / 2
        ways[:rank] /= 2
    away = abs(2 * int(doubled[found > 0].sum()) - total)
    return float(min(1.0, ways[np.abs(2 * np.arange(total + 1) - total) >= away].sum()))
