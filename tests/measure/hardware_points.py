"""Micro-benchmarks of a machine that follows the hardware costs, whose constants are known.

The formulas are those of docs/hardware-costs.md, written once more.
"""

import math

import numpy as np

from fastplan.measure.cases import COLLECTIVES, DEFAULT_SIZES, LOOKUP, WORLD, Case, cases
from fastplan.measure.constants import Point
from fastplan.model.hardware_costs import CONSTANTS_BY_NAME
from fastplan.spec.hardware import link_speeds

TRUTH = {
    "hbm_forward.latency": 0.03,
    "hbm_forward.efficiency": 0.6,
    "hbm_backward.latency": 0.05,
    "hbm_backward.efficiency": 0.45,
    "uvm_forward.latency": 0.06,
    "uvm_forward.unique_efficiency": 0.2,
    "uvm_forward.repeat_efficiency": 0.9,
    "uvm_backward.latency": 0.08,
    "uvm_backward.gradient_efficiency": 0.5,
    "uvm_backward.row_efficiency": 0.15,
    "caching_forward.latency": 0.09,
    "caching_forward.unique_id": 3.0,
    "caching_forward.miss_efficiency": 0.25,
    "caching_backward.latency": 0.05,
    "caching_backward.gradient_efficiency": 0.3,
    "caching_backward.unique_id": 2.0,
    "caching_backward.state_efficiency": 0.1,
} | {
    f"{scope}_{kind}.{name}": value * (1 + i) * (3 if scope == "network" else 1)
    for scope in ("domain", "network")
    for i, kind in enumerate(COLLECTIVES)
    for name, value in (("latency", 0.02), ("efficiency", 0.15))
}


def hardware_points(
    hardware, ranks=4, hosts=1, *, sizes=None, noise=0.05, outliers=0.0, seed=0, truth=TRUTH
) -> tuple[Point, ...]:
    """What this hardware would show; a share of the times, `outliers`, is three times as long."""
    random = np.random.default_rng(seed)
    sizes = sizes or DEFAULT_SIZES[hardware.device]
    found = []
    for case in cases(hardware.device, ranks, ranks // hosts, sizes):
        seconds = {}
        for work, ms in _times(case, hardware, ranks, ranks // hosts, truth).items():
            slow = 3.0 if random.random() < outliers else 1.0
            seconds[work] = slow * ms / 1000 * math.exp(noise * random.standard_normal())
        found.append(Point(case, seconds))
    return tuple(found)


def _times(case: Case, hardware, ranks, local, truth) -> dict[str, float]:
    links = link_speeds(hardware)

    def rate(name):
        return 1 / (truth[name] * getattr(links, CONSTANTS_BY_NAME[name].link))

    if case.kind == LOOKUP:
        return _lookup(case, truth, rate)
    if case.kind not in COLLECTIVES:
        return {"copy": case.counted / links.memory}
    passes = 2 if case.kind == "all_reduce" else 1
    in_host = passes * (local - 1) / local * case.bytes * rate(f"domain_{case.kind}.efficiency")
    if case.scope != WORLD:
        return {case.kind: truth[f"domain_{case.kind}.latency"] + in_host}
    leaving = passes * (ranks - local) / ranks * case.bytes
    if case.kind != "all_to_all":
        leaving /= local
    wire = max(in_host, leaving * rate(f"network_{case.kind}.efficiency"))
    return {case.kind: truth[f"network_{case.kind}.latency"] + wire}


def _lookup(case: Case, truth, rate) -> dict[str, float]:
    row = math.ceil(4 * case.dim / 32) * 32
    bags = case.tables * case.samples
    ids = bags * case.pooling
    unique = case.tables * case.rows * (1 - math.exp(-ids / case.tables / case.rows))
    states = 2 if case.optimizer == "adam" else 1 / case.dim
    forward = truth["hbm_forward.latency"] + (ids + bags) * row * rate("hbm_forward.efficiency")
    if case.kernel == "fused":
        changed = 2 * unique * (1 + states) * row
        backward = (ids * row + changed) * rate("hbm_backward.efficiency")
        return {"forward": forward, "backward": truth["hbm_backward.latency"] + backward}
    if case.kernel == "fused_uvm":
        forward = unique * row * rate("uvm_forward.unique_efficiency")
        forward += (ids - unique) * row * rate("uvm_forward.repeat_efficiency")
        backward = ids * row * rate("uvm_backward.gradient_efficiency")
        backward += unique * (1 + states) * row * rate("uvm_backward.row_efficiency")
        return {
            "forward": truth["uvm_forward.latency"] + forward,
            "backward": truth["uvm_backward.latency"] + backward,
        }
    forward += truth["caching_forward.latency"] + unique * truth["caching_forward.unique_id"] / 1e6
    forward += 0.8 * unique * row * rate("caching_forward.miss_efficiency")
    backward = ids * row * rate("caching_backward.gradient_efficiency")
    backward += unique * truth["caching_backward.unique_id"] / 1e6
    backward += unique * states * row * rate("caching_backward.state_efficiency")
    return {"forward": forward, "backward": truth["caching_backward.latency"] + backward}
