"""The hardware costs of a planner: `costs="hardware"` with a SKU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from fastplan.model.ids import IdStatistics
from fastplan.model.request import HardwareCosts, IdCurves
from fastplan.model.units import shown
from fastplan.model.vocabulary import PIPELINES
from fastplan.spec.hardware import Hardware, find_hardware, hardware_constants
from fastplan.spec.model import COST_MODELS

# By the name of their class, in torch or TorchRec.
_OPTIMIZERS = {
    "SGD": "sgd",
    "Adam": "adam",
    "RowWiseAdagrad": "rowwise_adagrad",
    "Adagrad": "adagrad",
    "LAMB": "lamb",
    "LarsSGD": "lars_sgd",
    "PartialRowWiseAdam": "partial_rowwise_adam",
    "PartialRowWiseLAMB": "partial_rowwise_lamb",
}
# By their name in FBGEMM's EmbOptimType.
_FUSED_NAMES = {
    "EXACT_SGD": "sgd",
    "SGD": "sgd",
    "ADAM": "adam",
    "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "ROWWISE_ADAGRAD": "rowwise_adagrad",
    "EXACT_ADAGRAD": "adagrad",
    "LAMB": "lamb",
    "LARS_SGD": "lars_sgd",
    "PARTIAL_ROWWISE_ADAM": "partial_rowwise_adam",
    "PARTIAL_ROWWISE_LAMB": "partial_rowwise_lamb",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerHardware:
    """The SKU whose hardware costs a planner uses, and the train pipeline of the job."""

    sku: Hardware
    constants: tuple[float, ...]
    pipeline: str
    statistics: Mapping[str, IdStatistics] = field(default_factory=dict)  # by table

    def costs(
        self, *, domain_ranks: int, states: tuple[float, ...], names: Iterable[str]
    ) -> HardwareCosts:
        """Returns the hardware costs of a request.

        Args:
            domain_ranks: ranks of one NVLink domain.
            states: by table, bytes of optimizer state per byte of weights.
            names: of the tables.
        """
        return HardwareCosts(
            constants=self.constants,
            domain_ranks=domain_ranks,
            states=states,
            pipeline=self.pipeline,
            ids=tuple(_curves(self.statistics.get(name)) for name in names),
        )

    def check_names(self, names: Iterable[str]) -> None:
        """Raises ValueError if there are statistics of a table that the model does not have."""
        known = list(names)
        for name in self.statistics:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                advice = f"did you mean {shown(near[0])}?" if near else "remove its statistics"
                problem = f"`statistics` has the table {shown(name)}, and the model has no such one"
                raise ValueError(f"{problem}; {advice}")


def _curves(ids: IdStatistics | None) -> IdCurves | None:
    return None if ids is None else IdCurves(ids.unique, ids.misses)


Statistics = str | os.PathLike[str] | Mapping[str, IdStatistics] | None


def planner_hardware(
    costs: str, sku: str | Hardware | None, pipeline: str, statistics: Statistics = None
) -> PlannerHardware | None:
    """Returns the hardware costs that a planner was asked for; None for TorchRec's.

    Raises:
        ValueError: `costs` or `pipeline` is unknown, `sku` is missing, or an argument needs
            hardware costs.
        HardwareError: the SKU is unknown, or has no constants.
        SpecError: the statistics file can't be read.
    """
    if costs not in COST_MODELS:
        raise ValueError(f"`costs` must be one of {', '.join(COST_MODELS)}, not {costs!r}")
    if pipeline not in PIPELINES:
        raise ValueError(f"`pipeline` must be one of {', '.join(PIPELINES)}, not {pipeline!r}")
    if costs == "torchrec":
        given = {"sku": sku, "pipeline": pipeline != "none" or None, "statistics": statistics}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f'`{name}` is for `costs="hardware"`')
        return None
    if sku is None:
        raise ValueError('`costs="hardware"` needs `sku`: a name of `fastplan skus`, or a file')
    hardware = find_hardware(sku) if isinstance(sku, str) else sku
    return PlannerHardware(
        sku=hardware,
        constants=hardware_constants(hardware),
        pipeline=pipeline,
        statistics=_read_statistics(statistics),
    )


def _read_statistics(statistics: Statistics) -> dict[str, IdStatistics]:
    if statistics is None:
        return {}
    if isinstance(statistics, str | os.PathLike):
        from fastplan.spec.ids import read_statistics

        return read_statistics(statistics)
    if not isinstance(statistics, Mapping) or not all(
        isinstance(ids, IdStatistics) for ids in statistics.values()
    ):
        raise ValueError("`statistics` must be a file, or an IdStatistics for each name of a table")
    return dict(statistics)


def optimizer_name(parameter: Any, sharder: Any = None) -> str | None:
    """Returns the optimizer of a table by its name in specs; None if it has none.

    Args:
        parameter: the table's weights, which apply_optimizer_in_backward marks.
        sharder: its sharder, whose `fused_params` may name an optimizer.
    """
    classes = getattr(parameter, "_optimizer_classes", None)
    if classes is not None:
        own = classes[0]
        known = own.__module__.partition(".")[0] in ("torch", "torchrec")
        return _OPTIMIZERS.get(own.__name__, "other") if known else "other"
    fused = getattr(sharder, "fused_params", None) or {}
    name = getattr(fused.get("optimizer"), "name", None)
    return None if name is None else _FUSED_NAMES.get(name, "other")
