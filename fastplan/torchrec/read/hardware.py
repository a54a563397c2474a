"""The hardware costs of a planner: `costs="hardware"` with a SKU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.model.request import HardwareCosts
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

    def costs(self, *, domain_ranks: int, states: tuple[float, ...]) -> HardwareCosts:
        """Returns the hardware costs of a request."""
        return HardwareCosts(
            constants=self.constants,
            domain_ranks=domain_ranks,
            states=states,
            pipeline=self.pipeline,
        )


def planner_hardware(
    costs: str, sku: str | Hardware | None, pipeline: str
) -> PlannerHardware | None:
    """Returns the hardware costs that a planner was asked for; None for TorchRec's.

    Raises:
        ValueError: `costs` or `pipeline` is unknown, or `sku` is missing.
        HardwareError: the SKU is unknown, or has no constants.
    """
    if costs not in COST_MODELS:
        raise ValueError(f"`costs` must be one of {', '.join(COST_MODELS)}, not {costs!r}")
    if pipeline not in PIPELINES:
        raise ValueError(f"`pipeline` must be one of {', '.join(PIPELINES)}, not {pipeline!r}")
    if costs == "torchrec":
        name = "sku" if sku is not None else "pipeline"
        if sku is not None or pipeline != "none":
            raise ValueError(f'`{name}` is for `costs="hardware"`')
        return None
    if sku is None:
        raise ValueError('`costs="hardware"` needs `sku`: a name of `fastplan skus`, or a file')
    hardware = find_hardware(sku) if isinstance(sku, str) else sku
    return PlannerHardware(sku=hardware, constants=hardware_constants(hardware), pipeline=pipeline)


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
