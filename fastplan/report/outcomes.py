"""What would become of a plan if one table took another option, and why it did not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fastplan.engine.problem import Floats
from fastplan.engine.step import step_goal
from fastplan.report.estimates import RATED, TIERS
from fastplan.report.options import Changed, Pair, PlanOptions, is_same, part_costs
from fastplan.report.places import Limits, Loads, Place, Shards, all_places

Status = Literal["planned", "better", "tie", "slower", "does not fit", "not allowed"]
CostPart = Literal["lookup", "exchange", "cost"]
# What a part of the cost consists of; the whole cost comes last.
_PARTS: dict[CostPart, tuple[str, ...]] = {
    "lookup": ("fwd_compute", "bwd_compute", "prefetch"),
    "exchange": ("fwd_comms", "bwd_comms"),
    "cost": RATED,
}
_HALVINGS = 24
_MOST_STEPS = 64


class Lack(NamedTuple):
    """Memory that a rank lacks."""

    tier: str
    rank: int
    bytes: int
    capacity: int  # of the rank


class Cut(NamedTuple):
    """How far a part of an option's cost would have to fall for the option to win, or to tie."""

    part: CostPart
    share: float
    ties: bool


class Roomy(NamedTuple):
    """The plan with an option that does not fit, if the ranks had more memory."""

    value: float  # rating or step, with as much memory as the option can use
    more: int  # bytes more on each rank for an option that wins or ties; else those to fit
    capacity: int  # of the rank that lacks most, with those bytes
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An option of a table: its costs, and why the plan does not have it.

    Args:
        pair: the sharding type and the kernel.
        status: why it is not in the plan, or that it is.
        shards: the number of shards.
        parts: milliseconds of the most expensive shard, by part.
        shard_ms: milliseconds of that shard.
        memory: bytes of the largest shard by tier.
        ranks: where its shards would be; None if it fits nowhere.
        rating: of the plan with this option; None if there is none.
        step: the same for the predicted step; None with TorchRec's costs.
        rise: how far rating or step rise, in milliseconds; negative if the plan gets better.
        lack: what is missing on the rank that lacks least.
        roomy: the plan with more memory.
        cut: by how much it would have to be cheaper.
        modules: of tables that have the option, if this one does not.
        complaint: what TorchRec can't do, if that is why.
        exact: whether no other placement of this option is better.
        replanned: rating or step of TorchRec's search with this option only; infinite if nothing
            fits; None if that was not computed.
    """

    pair: Pair
    status: Status
    shards: int = 0
    parts: dict[str, float]
    shard_ms: float = 0.0
    memory: dict[str, int]
    ranks: tuple[int, ...] | None = None
    rating: float | None = None
    step: float | None = None
    rise: float | None = None
    lack: Lack | None = None
    roomy: Roomy | None = None
    cut: Cut | None = None
    modules: tuple[str, ...] = ()
    complaint: str = ""
    exact: bool = True
    replanned: float | None = None


class Judge:
    """Judges the options of one table among the others."""

    def __init__(self, options: PlanOptions, position: int, loads: Loads) -> None:
        self._options, self._position, self._loads = options, position, loads
        chosen = int(options.chosen[position])
        self._others = float(loads.cost.max())
        here = Place(options.table_ranks(position), 0.0, 0, exact=True)
        self.without = self._others
        if options.step is not None:
            self.without = self._scaled_step(chosen, here, "cost", 0.0)

    def planned(self, option: int) -> Outcome:
        """Returns the option that the plan has, and what it costs on the plan's own ranks."""
        options = self._options
        return replace(
            self._bare(option, "planned"),
            ranks=tuple(options.table_ranks(self._position).tolist()),
            rating=options.rating,
            step=options.step,
            rise=0.0,
        )

    def elsewhere(self, option: int) -> Changed | None:
        """Returns the plan with the same option on better ranks, if there are any."""
        changed = self._options.changed(self._position, option, self._loads)
        if isinstance(changed, Changed) and self._status(changed.value) == "better":
            return changed
        return None

    def outcome(self, option: int) -> Outcome:
        """Returns what would become of the plan with another option."""
        options = self._options
        changed = options.changed(self._position, option, self._loads)
        if changed is None:
            roomy = self._roomy(option)
            found = replace(self._bare(option, "does not fit"), lack=self._lack(option))
            return replace(found, roomy=roomy)
        if isinstance(changed, str):
            return replace(self._bare(option, "not allowed"), complaint=changed)
        status = self._status(changed.value)
        return replace(
            self._bare(option, status),
            ranks=tuple(changed.place.ranks.tolist()),
            rating=changed.rating,
            step=changed.step,
            rise=changed.value - options.value,
            exact=changed.place.exact,
            cut=self._cut(option, changed) if status in ("slower", "tie") else None,
        )

    def _status(self, value: float) -> Status:
        if is_same(value, self._options.value):
            return "tie"
        return "better" if value < self._options.value else "slower"

    def _bare(self, option: int, status: Status) -> Outcome:
        options = self._options
        runs = options.runs(option)
        costs = options.run_cost[runs]
        worst = int(costs.argmax())
        return Outcome(
            pair=options.pair(option),
            status=status,
            shards=int(options.space.run_count[runs].sum()),
            parts={part: float(part_costs(options.space, part)[runs][worst]) for part in RATED},
            shard_ms=float(costs[worst]),
            memory=dict(zip(TIERS, options.run_memory[runs].max(axis=0).tolist(), strict=True)),
        )

    def _lack(self, option: int) -> Lack | None:
        """Returns what is missing where least is missing."""
        place = self._place(option, Limits("lack", lack=math.inf))
        return None if place is None else self._lack_at(option, place)

    def _place(self, option: int, limits: Limits) -> Place | None:
        return self._options.best(self._position, option, self._loads, limits)

    def _lack_at(self, option: int, place: Place) -> Lack | None:
        room = self._loads.room.copy()
        np.subtract.at(room, place.ranks, self._options.shards(option).memory)
        touched = np.unique(place.ranks)
        rank, tier = np.unravel_index(int(room[touched].argmin()), (len(touched), len(TIERS)))
        at = int(touched[rank])
        if room[at, tier] >= 0:
            return None
        capacity = int(self._options.capacity[at, tier])
        return Lack(TIERS[tier], at, -int(room[at, tier]), capacity)

    def _roomy(self, option: int) -> Roomy | None:
        """Returns the plan with enough memory, and how much more that is on each rank."""
        found = self._roomiest(option)
        if found is None:
            return None
        value, place = found
        lack = self._lack_at(option, place)
        if lack is None:
            return None
        return Roomy(value, lack.bytes, lack.capacity + lack.bytes, lack.tier)

    def _roomiest(self, option: int) -> tuple[float, Place] | None:
        """Returns value and placement: the least memory that is enough to win, tie or fit."""
        plan = self._options.value
        if self._options.step is not None:
            tried = [*self._steps_with_room(option)]
            if not tried:
                return None
            good = [own for own in tried if own[0] < plan and not is_same(own[0], plan)]
            good = good or [own for own in tried if is_same(own[0], plan)]
            if good:
                return min(good, key=lambda own: own[1].lack)
            return min(tried, key=lambda own: own[0])
        for most in (plan * (1 - 2e-9), plan * (1 + 1e-9)):
            place = None
            if self._others <= most:
                place = self._place(option, Limits("lack", cost=most, lack=math.inf))
            if place is not None:
                return max(self._others, place.cost), place
        place = self._place(option, Limits("cost", lack=math.inf))
        return None if place is None else (max(self._others, place.cost), place)

    def _steps_with_room(self, option: int) -> Iterator[tuple[float, Place]]:
        options = self._options
        pair = options.pair(option)
        ample = self._loads._replace(room=self._loads.room + (1 << 58))
        for place in all_places(
            pair.sharding_type,
            options.shards(option),
            ample,
            options.cluster(self._position),
            apart=False,
            most=_MOST_STEPS,
        ):
            step = options.step_with(*options.plan_with(self._position, option, place.ranks))
            lack = self._lack_at(option, place)
            assert step is not None
            yield step, place._replace(lack=0 if lack is None else lack.bytes)

    def _cut(self, option: int, changed: Changed) -> Cut | None:
        """Returns the smallest fall of a part of the cost after which the option wins, or ties."""
        plan = self._options.value
        can_win = self.without < plan and not is_same(self.without, plan)
        if changed.value <= plan and not can_win:
            return None
        # A hair below the plan, so that rounding does not decide.
        most = plan * (1 - 2e-9) if can_win else plan * (1 + 1e-9)
        found: Cut | None = None
        for part in _PARTS:
            if part == "cost" and found is not None:
                continue
            share = self._share(option, changed, part, most)
            if share is not None and (found is None or share < found.share):
                found = Cut(part, share, ties=not can_win)
        return found

    def _share(self, option: int, changed: Changed, part: CostPart, most: float) -> float | None:
        """Returns the least share to cut off a part so that the value is at most `most`."""

        def value(left: float) -> float:
            if self._options.step is not None:
                return self._scaled_step(option, changed.place, part, left)
            return self._scaled_rating(option, part, left)

        if value(0.0) > most:
            return None
        low, high = 0.0, 1.0  # of what is left: good at `low`, too much at `high`
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if value(middle) <= most else (low, middle)
        return 1 - low

    def _scaled_rating(self, option: int, part: CostPart, left: float) -> float:
        """Returns the rating if only a share of a part of the option's cost were left."""
        options = self._options
        runs = options.runs(option)
        count = options.space.run_count[runs]
        cost = _scaled(options, runs, part, left)
        shards = Shards(np.repeat(cost, count), options.shards(option).memory)
        place = options.best(self._position, option, self._loads, shards=shards)
        return math.inf if place is None else max(self._others, place.cost)

    def _scaled_step(self, option: int, place: Place, part: CostPart, left: float) -> float:
        """Returns the step with a share of a part of the option's cost, on the same ranks."""
        options = self._options
        runs = options.runs(option)
        columns = {}
        for name in (*_PARTS[part], *(["input_dist"] if part != "lookup" else [])):
            column = _COLUMNS.get(name, f"run_{name}")
            columns[column] = getattr(options.space, column).copy()
            columns[column][runs] *= left
        goal = step_goal(replace(options.space, **columns))
        plan = options.plan_with(self._position, option, place.ranks)
        found = options.step_with(*plan, goal)
        assert found is not None
        return found


_COLUMNS = {"prefetch": "run_prefetch_compute", "input_dist": "run_input_dist_comms"}


def _scaled(options: PlanOptions, runs: slice, part: CostPart, left: float) -> Floats:
    """Returns the costs of an option's runs with a share of one part."""
    found: Floats = sum(
        (left if name in _PARTS[part] else 1.0) * part_costs(options.space, name)[runs]
        for name in RATED
    )  # type: ignore[assignment]
    return found
