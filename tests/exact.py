"""Tiny problems, and their best plans by trying everything."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.request import Cluster
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES
from tests.problems import ALL_TYPES, request, table

MIB = 1 << 20


def tiny_problem(seed: int) -> Problem:
    """Up to three tables on up to four ranks: loose, tight or hopeless, even or not."""
    rng = random.Random(seed)
    hosts, group = rng.choice(((1, 2), (2, 1), (2, 2), (1, 4), (3, 1), (1, 1)))
    ranks = hosts * group
    types = tuple(rng.sample(ALL_TYPES, rng.randint(1, 4)))
    tables = []
    for i in range(rng.randint(1, 3)):
        made = table(f"t{i}", int(10 ** rng.uniform(3, 6)), rng.choice((16, 64, 128)))
        inputs = rng.uniform(0.5, 40) * 512
        made = made._replace(perf_inputs=inputs, storage_inputs=inputs)
        tables.append(made._replace(min_partition=rng.choice((0, 32, 64))))
    if rng.random() < 0.5 and set(types) <= {"table_row_wise", "table_column_wise", "row_wise"}:
        tables = [made._replace(tower="a") for made in tables]
    space = estimate(request(tables, ranks, group, types))
    memory = sum(made.bytes for made in tables) / ranks * rng.choice((0.5, 0.9, 1.1, 1.5, 8))
    memory += rng.choice((2, 16, 64)) * MIB
    uneven = rng.random() < 0.4
    cluster = Cluster(
        rank_hbm=tuple(
            int(memory * (rng.uniform(0.5, 1.6) if uneven else 1)) for _ in range(ranks)
        ),
        rank_ddr=(int(memory * rng.choice((0.2, 3))),) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    return Problem(space, cluster)


def packing_problem(seed: int) -> Problem:
    """Whole tables that fill the ranks nearly or more than completely."""
    rng = random.Random(seed)
    ranks = rng.choice((2, 3))
    tables = [
        table(f"t{i}", rng.randint(20, 100) * 4096, 64, pooling=rng.uniform(1, 40))
        for i in range(rng.randint(4, 7))
    ]
    made = request(tables, ranks, ranks, ("table_wise",))
    only_fused = tuple(item for item in made.menus[0] if item.kernel == "fused")
    space = estimate(replace(made, menus=(only_fused,)))
    memory = int(space.run_hbm.sum() / ranks * rng.uniform(1.0, 1.1))
    cluster = Cluster(
        rank_hbm=(memory,) * ranks,
        rank_ddr=(0,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=ranks,
        group_size=ranks,
    )
    return Problem(space, cluster)


class Exact:
    """Every legal placement of every option, table by table, dropped as soon as it can't win."""

    def __init__(self, problem: Problem) -> None:
        self._space, self._cluster = problem.space, problem.cluster
        self._ranks, self._group = len(problem.cluster.rank_hbm), problem.cluster.group_size
        cluster = problem.cluster
        self._capacity = list(
            zip(cluster.rank_hbm, cluster.rank_ddr, cluster.rank_ssd, strict=True)
        )
        self._tables = [list(self._placements(t)) for t in range(problem.space.tables)]
        self._least = [
            min((sum(load[0] for load in loads.values()) for _, loads in own), default=math.inf)
            for own in self._tables
        ]

    def best(self, known: float = math.inf) -> float:
        """The least rating, infinite without a plan. `known` is a rating that some plan has."""
        self._best = known
        self._search(0, [(0.0, 0, 0, 0)] * self._ranks, {})
        return self._best

    def _search(self, t: int, loads: list[tuple[float, int, int, int]], hosts: dict) -> None:
        if t == len(self._tables):
            self._best = min(self._best, max(load[0] for load in loads))
            return
        left = sum(self._least[t:]) + sum(load[0] for load in loads)
        if left >= self._best * self._ranks * (1 + 1e-12):
            return
        group = int(self._space.table_group[t])
        for host, added in self._tables[t]:
            if group >= 0 and host is not None and hosts.get(group, host) != host:
                continue
            now = list(loads)
            for rank, load in added.items():
                now[rank] = tuple(a + b for a, b in zip(now[rank], load, strict=True))
                fits = all(map(int.__le__, now[rank][1:], self._capacity[rank]))
                if now[rank][0] >= self._best or not fits:
                    break
            else:
                settled = hosts if group < 0 or host is None else {**hosts, group: host}
                self._search(t + 1, now, settled)

    def _placements(self, t: int) -> Iterator[tuple[int | None, dict]]:
        """(host of the first shard if it is not uniform, load by rank)."""
        begin = self._space.table_option_begin
        for option in range(begin[t], begin[t + 1]):
            shards = self._shards(option)
            for ranks in set(self._rank_lists(option, shards)):
                loads: dict[int, tuple] = {}
                for rank, load in zip(ranks, shards, strict=True):
                    before = loads.get(rank, (0.0, 0, 0, 0))
                    loads[rank] = tuple(a + b for a, b in zip(before, load, strict=True))
                uniform = SHARDING_TYPES[self._space.option_type[option]] in UNIFORM_TYPES
                yield (None if uniform else ranks[0] // self._group), loads

    def _shards(self, option: int) -> list[tuple[float, int, int, int]]:
        s, shards = self._space, []
        for run in range(s.option_run_begin[option], s.option_run_begin[option + 1]):
            cost = s.run_fwd_compute[run] + s.run_bwd_compute[run] + s.run_fwd_comms[run]
            cost += s.run_bwd_comms[run] + s.run_prefetch_compute[run]
            memory = (int(s.run_hbm[run]), int(s.run_ddr[run]), int(s.run_ssd[run]))
            shards += [(float(cost), *memory)] * int(s.run_count[run])
        return shards

    def _rank_lists(self, option: int, shards: list) -> Iterator[tuple[int, ...]]:
        kind = SHARDING_TYPES[self._space.option_type[option]]
        hosts, size, count = self._ranks // self._group, self._group, len(shards)
        if kind in UNIFORM_TYPES:
            if count == self._ranks:
                yield tuple(range(self._ranks))
        elif kind in ("table_wise", "column_wise"):
            yield from self._spread(range(self._ranks), shards, option)
        elif kind == "table_column_wise":
            for host in range(hosts):
                yield from self._spread(range(host * size, (host + 1) * size), shards, option)
        elif count % size == 0 and (kind == "grid_shard" or count == size):
            columns = count // size
            for chosen in itertools.product(range(hosts), repeat=columns):
                # TorchRec gives a grid's columns hosts of their own while there are enough.
                if columns <= hosts and len(set(chosen)) < columns:
                    continue
                yield tuple(host * size + i for host in chosen for i in range(size))

    def _spread(self, ranks: range, shards: list, option: int) -> Iterator[tuple[int, ...]]:
        alike = len(set(shards)) == 1
        apart = KERNELS[self._space.option_kernel[option]] == "key_value"
        choose = itertools.combinations_with_replacement if alike else None
        lists = (
            choose(ranks, len(shards)) if choose else itertools.product(ranks, repeat=len(shards))
        )
        for chosen in lists:
            if not apart or len(set(chosen)) == len(chosen):
                yield chosen
