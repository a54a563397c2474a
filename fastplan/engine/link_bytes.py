"""Bytes that a plan moves over host links in a step, as another cost of a request's options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastplan.engine.goals import Goal, fixed_point_scale, worst_sum
from fastplan.engine.problem import Floats, SearchSpace
from fastplan.engine.step import step_goal
from fastplan.model.hardware_costs import CONSTANTS
from fastplan.model.request import Request

# Bytes of the link for each byte that the formulas of the hardware costs count. Without a cache, a
# distinct row is read by the forward pass, and read and written by the backward pass. A cache
# fetches a row that it misses, and writes back the one that has to go for it. Optimizer state
# stays on the host: it is read and written.
_TRAINING = {
    "uvm_forward.unique_efficiency": 1.0,
    "uvm_backward.row_efficiency": 2.0,
    "caching_forward.miss_efficiency": 2.0,
    "caching_backward.state_efficiency": 2.0,
}
# Nothing is written.
_INFERENCE = {"uvm_forward.unique_efficiency": 1.0, "caching_forward.miss_efficiency": 1.0}


_MISS = [constant.full_name for constant in CONSTANTS].index("caching_forward.miss_efficiency")
# A millisecond of the links of all ranks together counts as so many of the step.
_LINK_WEIGHT = 200.0


def counting_link_bytes(request: Request) -> Request:
    """Returns the request with costs in bytes over host links, in the place of milliseconds.

    Args:
        request: a request with hardware costs.
    """
    assert request.hardware is not None
    weights = _INFERENCE if request.cost.perf_inference else _TRAINING
    constants = tuple(weights.get(constant.full_name, 0.0) for constant in CONSTANTS)
    return replace(request, hardware=replace(request.hardware, constants=constants))


def run_link_bytes(space: SearchSpace) -> Floats:
    """Returns the bytes of a shard of each run, in a space of `counting_link_bytes`."""
    found: Floats = space.run_fwd_compute + space.run_bwd_compute + space.run_prefetch_compute
    return found


def option_link_bytes(space: SearchSpace) -> Floats:
    """Returns the bytes of each option on all ranks, in a space of `counting_link_bytes`."""
    runs = run_link_bytes(space) * space.run_count
    found: Floats = np.add.reduceat(runs, space.option_run_begin[:-1])
    return found


def link_goal(request: Request, space: SearchSpace, run_bytes: Floats) -> Goal:
    """Returns the bytes over all host links as a measure for the native core.

    Of plans with nearly the same bytes, the one with the shorter step is better:
        value = weight x (bytes x ms per byte) + step.

    Args:
        request: the request, with hardware costs in milliseconds.
        space: the options, with costs in milliseconds.
        run_bytes: the bytes of a shard of each run of the space.
    """
    assert request.hardware is not None
    step = step_goal(space)
    ms = run_bytes * (_LINK_WEIGHT * request.hardware.constants[_MISS])
    worst = worst_sum(space, ms)
    # One more than what the sums of the step need: both are added.
    scale = min(step.scale / 2, fixed_point_scale(worst) / 2)
    shrink = scale / step.scale
    options = np.add.reduceat(ms * space.run_count, space.option_run_begin[:-1])
    charges = step.charges
    assert charges is not None
    return replace(
        step,
        part_amount=np.rint(step.part_amount * shrink).astype(np.int64),
        option_amount=np.rint(options * scale).astype(np.int64),
        charges=replace(
            charges, part_amount=np.rint(charges.part_amount * shrink).astype(np.int64)
        ),
        scale=scale,
    )
