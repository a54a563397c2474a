"""Measures of a plan in addition to its rating, as the native core adds them up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastplan.engine.problem import Floats, Ints, SearchSpace

if TYPE_CHECKING:
    from fastplan.engine import _native

# Sums of amounts stay below 2^60, and have this many bits.
_BITS = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """Amounts that are due once on a rank, however many shards on it bring the charge."""

    run_begin: Ints  # the charges that shards of a run bring
    run_charges: NDArray[np.int32]
    part_begin: Ints  # the parts of a charge
    part_channel: NDArray[np.int32]
    part_amount: Ints


def _no_charges(runs: int) -> Charges:
    return Charges(
        run_begin=np.zeros(runs + 1, np.int64),
        run_charges=np.zeros(0, np.int32),
        part_begin=np.zeros(1, np.int64),
        part_channel=np.zeros(0, np.int32),
        part_amount=np.zeros(0, np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A measure: amounts by channel of every run and every option. See cpp/search/goal.h."""

    channels: int
    run_part_begin: Ints
    part_channel: NDArray[np.int32]
    part_amount: Ints
    option_amount: Ints
    charges: Charges | None = None
    scale: float = 1.0  # amounts per unit of the measure
    channel_ranks: NDArray[np.int32] | None = None  # ranks that share a channel's sum; None: 1

    def columns(self) -> _native.GoalColumns:
        """Returns the columns that the native core reads."""
        charges = self.charges or _no_charges(len(self.run_part_begin) - 1)
        return {
            "channels": self.channels,
            "channel_ranks": np.ones(self.channels, np.int32)
            if self.channel_ranks is None
            else self.channel_ranks,
            "run_part_begin": self.run_part_begin,
            "part_channel": self.part_channel,
            "part_amount": self.part_amount,
            "option_amount": self.option_amount,
            "run_charge_begin": charges.run_begin,
            "run_charges": charges.run_charges,
            "charge_part_begin": charges.part_begin,
            "charge_part_channel": charges.part_channel,
            "charge_part_amount": charges.part_amount,
        }


def goal_of(space: SearchSpace, minimize: str) -> Goal:
    """Returns the measure that `Objectives.minimize` names, other than the rating."""
    runs = len(space.run_count)
    none = np.zeros(space.options, np.int64)
    if minimize == "shards":
        return Goal(
            channels=0,
            run_part_begin=np.zeros(runs + 1, np.int64),
            part_channel=np.zeros(0, np.int32),
            part_amount=np.zeros(0, np.int64),
            option_amount=np.add.reduceat(space.run_count, space.option_run_begin[:-1]),
        )
    if minimize == "memory":
        return Goal(
            channels=1,
            run_part_begin=np.arange(runs + 1),
            part_channel=np.zeros(runs, np.int32),
            part_amount=space.run_hbm,
            option_amount=none,
        )
    return _critical_path(space)


def _critical_path(space: SearchSpace) -> Goal:
    """Forward and backward compute, and both communications by module and sharding type."""
    tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
    module = space.table_module[tables].astype(np.int64)
    kinds, groups = np.unique(module * 256 + space.option_type, return_inverse=True)
    group = np.repeat(groups, np.diff(space.option_run_begin)).astype(np.int32)
    parts = (space.run_fwd_compute, space.run_bwd_compute, space.run_fwd_comms, space.run_bwd_comms)
    runs = len(group)
    zero = np.zeros(runs, np.int32)
    channels = np.stack([zero, zero + 1, 2 + 2 * group, 3 + 2 * group], axis=1)
    amounts = np.stack(parts, axis=1)
    scale = fixed_point_scale(worst_sum(space, amounts.sum(axis=1)))
    return Goal(
        channels=2 + 2 * len(kinds),
        run_part_begin=np.arange(runs + 1) * 4,
        part_channel=channels.reshape(-1).astype(np.int32),
        part_amount=np.rint(amounts * scale).astype(np.int64).reshape(-1),
        option_amount=np.zeros(space.options, np.int64),
        scale=scale,
    )


def worst_sum(space: SearchSpace, run_amounts: Floats) -> float:
    """Returns the sum of the amounts of all shards, with the largest option of every table."""
    options = np.add.reduceat(run_amounts * space.run_count, space.option_run_begin[:-1])
    return float(np.maximum.reduceat(options, space.table_option_begin[:-1]).sum())


def fixed_point_scale(largest: float) -> float:
    """Returns the power of two that amounts are multiplied with, if sums reach `largest`."""
    return math.ldexp(1.0, _BITS - math.frexp(largest)[1]) if largest > 0 else 1.0
