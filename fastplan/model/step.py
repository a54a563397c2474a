"""What a training step waits for: the phases of a plan, each as long as its slowest rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from fastplan.model.hardware_costs import CostFigure

PhaseName = Literal[
    "input_exchange",
    "prefetch",
    "forward_lookup",
    "forward_exchange",
    "backward_exchange",
    "backward_lookup",
]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)

# The phases that a pipeline runs while the step before is computed.
HIDDEN_PHASES: dict[str, frozenset[PhaseName]] = {
    "none": frozenset(),
    "train_sparse_dist": frozenset({"input_exchange"}),
    "train_prefetch_sparse_dist": frozenset({"input_exchange", "prefetch"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a step that ranks begin and end together."""

    name: PhaseName
    module: str = ""  # of an exchange: one for each module and sharding type
    sharding_type: str = ""
    ms: float  # of the slowest rank
    rank: int  # the slowest one; the first of equals
    mean_ms: float  # over all ranks
    latency_ms: float  # of the slowest rank: what does not depend on sizes
    hidden: bool  # whether the pipeline hides it, so that the step does not wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A plan's embedding work in one step, under the hardware costs.

    Ranks wait for each other in every exchange, so a step takes as long as the slowest rank of each
    phase: ms = sum over phases of max over ranks.
    """

    ms: float  # of the phases that are not hidden
    phases: tuple[Phase, ...]  # in the order of PHASES; exchanges that the plan has
    tables: int = 0
    statistics: int = 0  # tables whose ids have statistics; those of the others count as uniform
    # What the constants of the hardware costs rest on, by name such as hbm_forward.latency.
    constants: Mapping[str, CostFigure] = field(default_factory=dict, repr=False, compare=False)

    def describe(self) -> dict[str, Any]:
        """Returns the step as JSON."""
        return {
            "ms": self.ms,
            "phases": [asdict(phase) for phase in self.phases],
            "tables": self.tables,
            "statistics": self.statistics,
        }
