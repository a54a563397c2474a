"""Micro-benchmarks of a machine that follows TorchRec's formulas, whose constants are known."""

import numpy as np

from fastplan.measure.cases import COLLECTIVES, COPY, DEFAULT_SIZES, LOOKUP, WORLD, cases
from fastplan.measure.constants import Point
from fastplan.spec.stock import WEIGHTED_KERNEL_MULTIPLIER

MEMORY, BACKWARD, EXCHANGE, REDUCE, NETWORK, LINK = 5e9, 2.5, 1e9, 0.4e9, 0.2e9, 8e9


def points(device="cpu", ranks=4, hosts=1, noise=0.01, **speeds):
    """What a machine would show that follows TorchRec's formulas to some noise."""
    random = np.random.default_rng(0)
    found = []
    for case in cases(device, ranks, ranks // hosts, DEFAULT_SIZES[device]):
        speed = {
            LOOKUP: {"fused_uvm": LINK / 10, "fused_uvm_caching": LINK / 5}.get(
                case.kernel, MEMORY
            ),
            COPY: 2 * MEMORY,
            "host_copy": LINK,
            "all_reduce": REDUCE,
        }.get(case.kind, EXCHANGE)
        if case.kind in COLLECTIVES and case.scope == WORLD:
            speed = NETWORK
        seconds = case.counted / speeds.get(case.kind, speed)
        works = {case.kind: 1.0}
        if case.kind == LOOKUP:
            backward = BACKWARD + (WEIGHTED_KERNEL_MULTIPLIER if case.weighted else 0)
            works = {"forward": 1.0, "backward": backward}
        elif case.kind in (COPY, "host_copy"):
            works = {"copy": 1.0}
        found.append(
            Point(
                case,
                {
                    work: seconds * factor * float(np.exp(noise * random.standard_normal()))
                    for work, factor in works.items()
                },
            )
        )
    return found
