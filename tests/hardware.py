"""Random hardware costs, and problems under them."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.hardware_costs import CONSTANTS, Constant, LinkSpeeds, core_constants
from fastplan.model.request import Cluster, HardwareCosts, MenuItem, Request
from fastplan.model.vocabulary import PIPELINES
from tests.problems import ALL_TYPES, request, table

KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
# Bytes per ms of devices of three generations.
_LINKS = (
    LinkSpeeds(memory=1.5e9, host=1.2e7, domain=2.5e8, network=1.2e7),
    LinkSpeeds(memory=3.3e9, host=5e7, domain=4.5e8, network=5e7),
    LinkSpeeds(memory=8e9, host=4e8, domain=9e8, network=1e8),
)


def draw_constants(rng: random.Random) -> tuple[float, ...]:
    """Constants of the size that measurements have."""
    return core_constants({c.full_name: _drawn(c, rng) for c in CONSTANTS}, rng.choice(_LINKS))


def _drawn(constant: Constant, rng: random.Random) -> float:
    if constant.unit == "ms":
        by_rank = constant.name == "latency_per_rank"
        return rng.choice((0.0, 1e-4, 5e-4)) if by_rank else 10 ** rng.uniform(-2.5, -1)
    if constant.unit == "ns/id":
        return 10 ** rng.uniform(-1, 1)
    return rng.uniform(0.2, 0.95) if constant.unit == "efficiency" else rng.uniform(0, 2)


def hardware_costs(rng: random.Random, tables: int, group: int) -> HardwareCosts:
    return HardwareCosts(
        constants=draw_constants(rng),
        domain_ranks=rng.choice((1, group, group, 4 * group)),
        states=tuple(rng.choice((0.0, 1 / 64, 1.0, 2.0)) for _ in range(tables)),
        pipeline=rng.choice(PIPELINES),
    )


def menu(types: tuple[str, ...], kernels: tuple[str, ...] = KERNELS) -> tuple[MenuItem, ...]:
    items = []
    for kind in types:
        own = ("dense",) if kind == "data_parallel" else kernels
        items += [MenuItem(kind, kernel, 9.6e8, 0) for kernel in own]
    return tuple(items)


def drawn_request(
    rng: random.Random, tables: int, ranks: int, group: int, types: tuple[str, ...] = ALL_TYPES
) -> Request:
    """Tables of one to three modules, pooled or not by module, under drawn hardware costs."""
    modules = rng.randint(1, 3)
    pooled = [rng.random() < 0.8 for _ in range(modules)]
    made = []
    for i in range(tables):
        module = rng.randrange(modules)
        pooling = 10 ** rng.uniform(0, 2)
        batch = rng.choice((1, 4, 16))
        known = rng.random() < 0.5  # whether there are statistics of the ids
        own = table(f"t{i}", int(10 ** rng.uniform(1, 7.3)), rng.choice((16, 32, 64, 128, 256)))
        made.append(
            own._replace(
                path=f"m{module}",
                pooled=pooled[module],
                weighted=rng.random() < 0.2,
                perf_inputs=512 * batch * pooling,
                perf_outputs=512.0 * batch,
                min_partition=rng.choice((0, 32)),
                cache_ratio=rng.uniform(0.05, 0.5),
                expected_lookups=256 * batch * pooling if known else math.nan,
                miss_rate=rng.uniform(0, 0.5) if known else math.nan,
            )
        )
    return replace(
        request(made, ranks, group, types),
        menus=(menu(types),),
        hardware=hardware_costs(rng, tables, group),
    )


def drawn_cluster(rng: random.Random, made: Request, ranks: int, group: int) -> Cluster:
    """Memory from scarce to ample: tables need host memory, or fit on the devices easily."""
    room = sum(t.bytes for t in made.tables) / ranks * rng.choice((0.2, 0.6, 1.0, 1.5, 5))
    largest = max(t.bytes for t in made.tables)
    hbm = int(room + rng.uniform(0.05, 0.3) * largest + (256 << 20))
    return Cluster(
        rank_hbm=(hbm,) * ranks,
        rank_ddr=(int(8 * room) + largest + (1 << 30),) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )


def drawn_problem(seed: int) -> tuple[Request, Problem]:
    """5 to 200 tables on 2 to 64 ranks of 1 to 8 hosts."""
    rng = random.Random(f"step {seed}")
    hosts, group = rng.choice([(h, g) for h in (1, 2, 4, 8) for g in (2, 4, 8) if h * g >= 2])
    ranks = hosts * group
    made = drawn_request(rng, int(10 ** rng.uniform(math.log10(5), math.log10(200))), ranks, group)
    return made, Problem(estimate(made), drawn_cluster(rng, made, ranks, group))
