"""The step of a plan: what ranks wait for in each phase, as a measure and as a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fastplan.engine import _native
from fastplan.engine.goals import Charges, Goal, fixed_point_scale, worst_sum
from fastplan.engine.problem import Ints, Problem, SearchSpace
from fastplan.model.hardware_costs import FAMILY_OF_KERNEL, KERNEL_FAMILIES
from fastplan.model.request import Request
from fastplan.model.step import HIDDEN_PHASES, PHASES, Phase, PhaseName, Step
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES

if TYPE_CHECKING:
    from fastplan.engine.solve import Options

# Channels that all shards share, in this order; two for each group of exchanges follow.
_SHARED: tuple[PhaseName, ...] = (
    "input_exchange",
    "prefetch",
    "forward_lookup",
    "backward_lookup",
)
_INPUT, _PREFETCH, _FORWARD, _BACKWARD = range(len(_SHARED))
_FAMILY_OF_KERNEL = np.array(
    [KERNEL_FAMILIES.index(FAMILY_OF_KERNEL.get(kernel, "hbm")) for kernel in KERNELS], np.int32
)
# Lengths and values are exchanged one after the other.
_INPUT_EXCHANGES = 2


class FamilyLatency(NamedTuple):
    """Milliseconds that a kernel takes whatever it looks up."""

    forward: float
    prefetch: float
    backward: float


class ExchangeLatency(NamedTuple):
    """Milliseconds that the exchanges of a sharding type take whatever their size."""

    input: float
    forward: float
    forward_across: float
    backward: float
    backward_across: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """What a step depends on beside the costs of shards: latencies, and what a pipeline hides."""

    pipeline: str  # one of vocabulary.PIPELINES
    backward: bool  # whether there is a backward pass
    modules: tuple[str, ...]  # paths, by the numbers of SearchSpace.table_module
    table_pooled: NDArray[np.uint8]
    families: tuple[FamilyLatency, ...]  # in the order of KERNEL_FAMILIES
    exchanges: tuple[tuple[ExchangeLatency, ExchangeLatency], ...]  # by type: without, with pooling
    statistics: int = 0  # tables whose ids have statistics
    link_ranks: int = 1  # ranks that share the link which exchanges use

    @property
    def hidden(self) -> frozenset[PhaseName]:
        return HIDDEN_PHASES[self.pipeline]


def step_model(request: Request, columns: dict[str, Any]) -> StepModel:
    """Returns the step model of a request with hardware costs, from its columns."""
    assert request.hardware is not None
    families, types = _native.hardware_latencies(columns)
    return StepModel(
        pipeline=request.hardware.pipeline,
        backward=not request.cost.perf_inference,
        modules=tuple(dict.fromkeys(table.path for table in request.tables)),
        table_pooled=columns["table_pooled"],
        families=tuple(FamilyLatency(*latencies) for latencies in families),
        exchanges=tuple(
            (ExchangeLatency(*single), ExchangeLatency(*pooled)) for single, pooled in types
        ),
        statistics=sum(own is not None for own in request.hardware.ids),
        link_ranks=_link_ranks(request),
    )


def _link_ranks(request: Request) -> int:
    """Returns how many ranks share a link of the network; 1 if nothing crosses the network.

    Each GPU has a network card of its own. The CPU ranks of a host share the host's card: it is as
    busy as all of them together, however the bytes are spread over the ranks.
    """
    assert request.hardware is not None
    ranks = request.hardware.domain_ranks
    shared = request.cost.device_kind == "cpu" and request.cost.perf_world_size > ranks
    return ranks if shared else 1


class _Group(NamedTuple):
    """Tables whose exchanges are one."""

    module: int
    kind: int
    pooled: int


class _Groups(NamedTuple):
    """The groups of a space, and the group of every option."""

    groups: list[_Group]
    of_option: Ints


def _groups_of(space: SearchSpace, model: StepModel) -> _Groups:
    tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
    module, pooled = (
        column[tables].astype(np.int64) for column in (space.table_module, model.table_pooled)
    )
    keys = (module * 2 + (pooled != 0)) * len(SHARDING_TYPES) + space.option_type
    distinct, of_option = np.unique(keys, return_inverse=True)
    groups = []
    for key in distinct.tolist():
        rest, kind = divmod(key, len(SHARDING_TYPES))
        groups.append(_Group(rest // 2, kind, rest % 2))
    return _Groups(groups, of_option)


def step_goal(space: SearchSpace) -> Goal:
    """Returns the step as a measure for the native core, without the phases that are hidden.

    Raises:
        ValueError: the space has no hardware costs.
    """
    model = _model_of(space)
    return _goal(space, model, model.hidden)


def _goal(space: SearchSpace, model: StepModel, left_out: frozenset[PhaseName]) -> Goal:
    groups = _groups_of(space, model)
    group = np.repeat(groups.of_option, np.diff(space.option_run_begin)).astype(np.int32)
    first = np.int32(len(_SHARED)) + np.int32(2) * group
    channels: list[int | NDArray[np.int32]] = [*range(len(_SHARED)), first, first + np.int32(1)]
    amounts = [
        space.run_input_dist_comms,
        space.run_prefetch_compute,
        space.run_fwd_compute,
        space.run_bwd_compute,
        space.run_fwd_comms,
        space.run_bwd_comms,
    ]
    charges = _charges(groups.groups, model)
    ranks = np.full(len(_SHARED) + 2 * len(groups.groups), model.link_ranks, np.int32)
    ranks[[_PREFETCH, _FORWARD, _BACKWARD]] = 1
    if model.link_ranks > 1:
        # The costs are those of a link whose ranks all send as much as this one.
        for exchange in (_INPUT, len(_SHARED), len(_SHARED) + 1):
            amounts[exchange] = amounts[exchange] / model.link_ranks
        charges = [[(at, ms / ranks[at]) for at, ms in own] for own in charges]
    # One scale, whatever is left out: the values of both measures can be compared to the bit.
    scale = fixed_point_scale(
        worst_sum(space, sum(amounts[1:], amounts[0])) + sum(ms for own in charges for _, ms in own)
    )
    hidden = {_SHARED.index(phase) for phase in left_out}
    kept = ([(at, ms) for at, ms in own if at not in hidden] for own in charges)
    parts = [
        (channel, np.rint(amount * scale))
        for at, (channel, amount) in enumerate(zip(channels, amounts, strict=True))
        if at not in hidden and amount.any()
    ]
    part_channel = np.empty((len(group), len(parts)), np.int32)
    part_amount = np.empty((len(group), len(parts)), np.int64)
    for at, (channel, amount) in enumerate(parts):
        part_channel[:, at] = channel
        part_amount[:, at] = amount
    return Goal(
        channels=len(_SHARED) + 2 * len(groups.groups),
        run_part_begin=np.arange(len(group) + 1) * len(parts),
        part_channel=part_channel.reshape(-1),
        part_amount=part_amount.reshape(-1),
        option_amount=np.zeros(space.options, np.int64),
        charges=_columns(list(kept), _brought(space, group), scale),
        scale=scale,
        channel_ranks=ranks,
    )


def _charges(groups: list[_Group], model: StepModel) -> list[list[tuple[int, float]]]:
    """Returns (channel, ms) of each charge: one by kernel family, then one by group."""
    found = [
        [(_FORWARD, own.forward), (_PREFETCH, own.prefetch), (_BACKWARD, own.backward)]
        for own in model.families
    ]
    for number, group in enumerate(groups):
        own = model.exchanges[group.kind][group.pooled]
        first = len(_SHARED) + 2 * number
        found.append(
            [
                (_INPUT, _INPUT_EXCHANGES * own.input),
                (first, own.forward + own.forward_across),
                (first + 1, own.backward + own.backward_across),
            ]
        )
    if not model.backward:
        found = [own[:2] for own in found]
    return [[(channel, ms) for channel, ms in own if ms > 0] for own in found]


def _brought(space: SearchSpace, group: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the two charges that shards of each run bring."""
    family = np.repeat(_FAMILY_OF_KERNEL[space.option_kernel], np.diff(space.option_run_begin))
    return np.stack([family, len(KERNEL_FAMILIES) + group], axis=1).astype(np.int32)


def _columns(
    charges: list[list[tuple[int, float]]], brought: NDArray[np.int32], scale: float
) -> Charges:
    parts = [part for own in charges for part in own]
    return Charges(
        run_begin=np.arange(len(brought) + 1) * brought.shape[1],
        run_charges=brought.reshape(-1),
        part_begin=np.cumsum([0, *map(len, charges)]),
        part_channel=np.array([channel for channel, _ in parts], np.int32),
        part_amount=np.rint(np.array([ms for _, ms in parts]) * scale).astype(np.int64),
    )


def step_of(problem: Problem, options: Options, ranks: Options) -> Step:
    """Returns the step of a plan.

    Args:
        problem: the problem, with hardware costs.
        options: by plan position: numbers of the search space's options.
        ranks: of the shards that are not uniform, in plan order.

    Raises:
        ValueError: the space has no hardware costs.
    """
    space = problem.space
    model = _model_of(space)
    goal = _goal(space, model, frozenset())
    counted = _native.tally(problem.handle, {"options": options, "ranks": ranks}, goal.columns())
    assert goal.channel_ranks is not None
    link_ranks = goal.channel_ranks
    sums = counted["sums"].reshape(goal.channels, -1)
    charges = counted["charges"].reshape(goal.channels, -1)
    hidden = model.hidden
    groups = _groups_of(space, model)
    named: list[tuple[PhaseName, int, _Group | None]] = [
        (name, channel, None) for channel, name in enumerate(_SHARED)
    ]
    for number in np.unique(groups.of_option[options]).tolist():
        first = len(_SHARED) + 2 * number
        named.append(("forward_exchange", first, groups.groups[number]))
        named.append(("backward_exchange", first + 1, groups.groups[number]))
    named.sort(key=lambda phase: PHASES.index(phase[0]))
    total = 0
    phases = []
    for name, channel, group in named:
        shared = int(link_ranks[channel])
        own = sums[channel, ::shared]  # the others of a link count with its first rank
        slowest = shared * int(own.argmax())
        largest = int(sums[channel, slowest])
        total += 0 if name in hidden else largest
        phases.append(
            Phase(
                name=name,
                module="" if group is None else model.modules[group.module],
                sharding_type="" if group is None else SHARDING_TYPES[group.kind],
                ms=largest / goal.scale,
                rank=slowest,
                mean_ms=float(own.mean()) / goal.scale,
                latency_ms=int(charges[channel, slowest]) / goal.scale,
                hidden=name in hidden,
            )
        )
    return Step(
        ms=total / goal.scale,
        phases=tuple(phases),
        tables=len(model.table_pooled),
        statistics=model.statistics,
    )


def step_settings(problem: Problem) -> _native.SearchSettings:
    """Returns the settings that make a search compare plans by the step, not by the rating.

    Raises:
        ValueError: the space has no hardware costs.
    """
    goal = step_goal(problem.space)
    model = _model_of(problem.space)
    # A rating is a sum over the phases of one rank; a step takes the slowest rank of each. This
    # does not hold if the step leaves a part of the rating out, or shares it between ranks.
    known = "prefetch" not in model.hidden and model.link_ranks == 1
    return cast(
        "_native.SearchSettings",
        {"goal": goal.columns(), "goal_per_rating": goal.scale if known else 0.0},
    )


def step_bound(problem: Problem) -> float:
    """Returns a lower bound on the step of every plan, in milliseconds.

    The slowest rank of a phase is not below the average of all R ranks, so
        step >= 1 / R sum over tables of min over options of the sum of its shards in all phases.
    Latencies are left out, because ranks without shards don't pay them. The sums are integers, and
    the division is rounded down.

    Raises:
        ValueError: the space has no hardware costs.
    """
    space = problem.space
    goal = step_goal(space)
    # The sums of all options may wrap around; the differences are right all the same.
    ends = np.concatenate([[0], np.cumsum(goal.part_amount)])
    runs = np.diff(ends[goal.run_part_begin]) * space.run_count
    options = np.add.reduceat(runs, space.option_run_begin[:-1])
    least = int(np.minimum.reduceat(options, space.table_option_begin[:-1]).sum())
    return least // len(problem.cluster.rank_hbm) / goal.scale


def _model_of(space: SearchSpace) -> StepModel:
    if space.step is None:
        raise ValueError("the step of a plan needs hardware costs: the request has none")
    return space.step
