"""Offload plans against TorchRec's scale-up proposer and uniform load factors, at equal HBM.

Each model has an id stream. Its first part gives the statistics: curves for fastplan, and the
CacheStatistics that TorchRec's proposer reads, from the same numbers. The rest is replayed through
caches of the planned sizes (bench/cache_simulator.py), and the bytes over the host link count.

Offload plans are made for the fewest bytes and for the shortest step. "Least" is what no plan can
go below: one pool of HBM for all ranks, caches of any size, and no memory for what ranks share.
"""

import argparse
import itertools
import logging
import math
import statistics
import time
import warnings
from typing import Any

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import CacheParams, CacheStatistics
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from bench.arguments import at_least_one, new_parser
from bench.cache_simulator import Shard, host_bytes, miss_curve
from bench.id_streams import StreamModel, draw_model
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table, verdicts
from fastplan.engine.optimize import Objectives, Optimize
from fastplan.model.ids import Curve, IdStatistics
from fastplan.model.objectives import Minimize
from fastplan.torchrec.planner import EmbeddingShardingPlanner

FILE = "offload.json"
SHARES = (0.10, 0.25, 0.50)
OBJECTIVES: dict[str, Minimize] = {"bytes": "link_bytes", "step": "step"}
STARTS = (0.1, 0.03, 0.01)  # load factors that the scale-up proposer starts from
SIZES = 48
STATE_BYTES = 4.0  # of row-wise Adagrad, for each row
HOST = 1 << 40
SHARDERS = [
    EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD})
]


class StreamStatistics(CacheStatistics):
    """What TorchRec's proposer reads, from the training part of a stream."""

    def __init__(self, rows: int, sizes: Any, misses: Any, distinct: float) -> None:
        self._load_factors = np.concatenate([[0.0], sizes / rows])
        self._rates = np.concatenate([[1.0], misses / distinct])
        self._rates[-1] = 0.0  # as its definition wants for a load factor of 1
        self._distinct = distinct

    @property
    def expected_lookups(self) -> float:
        return self._distinct

    def expected_miss_rate(self, clf: float) -> float:
        return float(np.interp(clf, self._load_factors, self._rates))

    @property
    def cacheability(self) -> float:
        """The area under the miss-rate curve: 0 is easy to cache, 1 hard."""
        return float(np.trapezoid(self._rates, self._load_factors))


class Case:
    """One model, with what both planners know of its ids."""

    def __init__(self, model: StreamModel, planner: Any) -> None:
        self.model = model
        self.planner = planner  # of TorchRec's plans
        self.names = [f"t{i}" for i in range(len(model.rows))]
        self.torchrec: dict[str, StreamStatistics] = {}
        self.ids: dict[str, IdStatistics] = {}
        self.trades: list[tuple[Any, Any]] = []  # by table: bytes of HBM, and over the link
        for name, stream in zip(self.names, model.streams, strict=True):
            sizes = np.unique(np.geomspace(32, stream.rows, SIZES).astype(np.int64))
            misses, distinct = miss_curve(stream, sizes)
            self.torchrec[name] = StreamStatistics(stream.rows, sizes, misses, distinct)
            self.trades.append(self._trade(len(self.trades), sizes, misses, distinct))
            ids = stream.per_step
            self.ids[name] = IdStatistics(
                ids=ids * (stream.train - stream.warm),
                samples=model.ranks * model.batch * (stream.train - stream.warm),
                unique=Curve.of([(float(ids), min(distinct / ids, 1.0))]),
                misses=Curve(tuple(map(float, sizes)), tuple((misses / ids).clip(0, 1).tolist())),
            )

    def _trade(self, number: int, sizes: Any, misses: Any, distinct: float) -> tuple[Any, Any]:
        """Caches of all sizes and none, and the whole table in HBM."""
        rows, row = self.model.rows[number], 4.0 * self.model.dims[number]
        states = 2 * distinct * STATE_BYTES
        hbm = np.concatenate([[0.0], sizes * row, [rows * row]])
        link = 2 * np.concatenate([[distinct], misses, [0.0]]) * row + states
        link[-1] = 0.0
        # A cache between two sizes has at least the misses of the larger one.
        hbm[1:-1] = np.concatenate([[0.0], hbm[1:-2]])
        return hbm, link

    def least(self, share: float) -> float:
        """Bytes that no plan can go below, by the training part of the stream.

        For any price p of a byte of HBM: sum over tables of min (link + p hbm) - p room.
        """
        room = self.needed() * share - self.batch_bytes()
        prices = np.concatenate([[0.0], np.geomspace(1e-9, 10.0, 400)])
        sums = sum((link + prices[:, None] * hbm).min(axis=1) for hbm, link in self.trades)
        return float((sums - prices * room).max())

    def module(self) -> EmbeddingBagCollection:
        model = self.model
        tables = [
            EmbeddingBagConfig(
                name=name, embedding_dim=dim, num_embeddings=rows, feature_names=[f"f_{name}"]
            )
            for name, rows, dim in zip(self.names, model.rows, model.dims, strict=True)
        ]
        return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)

    def needed(self) -> int:
        """HBM of all ranks if every table is in it: weights and what a batch takes."""
        weights = sum(n * dim * 4 for n, dim in zip(self.model.rows, self.model.dims, strict=True))
        return weights + self.batch_bytes()

    def batch_bytes(self) -> int:
        """What a batch takes on all ranks, if no table is split by rows."""
        model = self.model
        samples = model.ranks * model.batch
        pairs = zip(model.dims, model.poolings, strict=True)
        return sum(samples * (8 * pooling + dim * 4) for dim, pooling in pairs)

    def topology(self, share: float) -> Topology:
        ranks = self.model.ranks
        return Topology(
            world_size=ranks,
            local_world_size=ranks,
            compute_device="cuda",
            hbm_cap=int(self.needed() * share / ranks),
            ddr_cap=HOST,
        )

    def rules(self, **more: Any) -> dict[str, ParameterConstraints]:
        return {
            name: ParameterConstraints(pooling_factors=[float(pooling)], **more)
            for name, pooling in zip(self.names, self.model.poolings, strict=True)
        }

    def host_bytes(self, plan: Any) -> float:
        """Bytes over the host links of all ranks in a step, as the rest of the stream has them."""
        total = 0.0
        for name, own in plan.plan[""].items():
            number = self.names.index(name)
            stream = self.model.streams[number]
            factor = own.cache_params.load_factor if own.cache_params else None
            if own.compute_kernel not in ("fused_uvm", "fused_uvm_caching"):
                continue
            for shard in own.sharding_spec.shards:
                rows, cols = shard.shard_sizes
                if rows == 0:
                    continue
                part = Shard(
                    kernel=own.compute_kernel,
                    first=shard.shard_offsets[0],
                    rows=rows,
                    row_bytes=4.0 * cols,
                    cache_rows=int((0.2 if factor is None else factor) * rows),
                )
                total += host_bytes(stream, part, STATE_BYTES)
        return total


def by_fastplan(
    case: Case, share: float, moves: int, minimize: Minimize
) -> tuple[Any, dict[str, Any]]:
    """The offload plan, and what it is predicted to come to."""
    planner = EmbeddingShardingPlanner(
        topology=case.topology(share),
        batch_size=case.model.batch,
        constraints=case.rules(),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        costs="hardware",
        sku="h100",
        statistics=case.ids,
        optimize=Optimize(
            time_budget=None,
            move_budget=moves,
            offload=True,
            objectives=Objectives(minimize=minimize),
        ),
        cache=False,
    )
    began = time.process_time()
    plan = planner.plan(case.module(), SHARDERS)
    seconds = time.process_time() - began
    run = planner.last_run
    assert run is not None
    assert run.step is not None
    return plan, {"step_ms": run.step.ms, "objective": run.objective, "cpu_seconds": seconds}


def _torchrec_plan(case: Case, share: float, rules: Any, proposer: Any) -> tuple[Any, float] | None:
    """TorchRec's plan and its rating; None if nothing fits."""
    planner = case.planner(
        topology=case.topology(share),
        batch_size=case.model.batch,
        constraints=rules,
        storage_reservation=FixedPercentageStorageReservation(0.0),
        proposer=proposer,
        stats=[],
    )
    try:
        plan = planner.plan(case.module(), SHARDERS)
    except PlannerError:
        return None
    assert planner._best_plan is not None
    return plan, float(planner._perf_model.rate(plan=planner._best_plan))


def by_scaleup(case: Case, share: float) -> Any:
    """TorchRec's plan with the scale-up proposer: of all starts, the one that it rates best."""
    found = []
    for start in STARTS:
        rules = case.rules()
        for name in case.names:
            stats = case.torchrec[name]
            rules[name].cache_params = CacheParams(load_factor=start, stats=stats)
        plan = _torchrec_plan(case, share, rules, EmbeddingOffloadScaleupProposer())
        if plan is not None:
            found.append(plan)
    return min(found, key=lambda each: each[1])[0] if found else None


def by_uniform(case: Case, share: float) -> Any:
    """TorchRec's plan with one load factor for all tables: the largest that fits."""
    kernels = [EmbeddingComputeKernel.FUSED_UVM_CACHING.value]
    best, low, high = None, 0.0, min(share * 1.2, 1.0)
    for _ in range(7):
        factor = (low + high) / 2
        rules = case.rules(compute_kernels=kernels)
        for rule in rules.values():
            rule.cache_params = CacheParams(load_factor=factor)
        plan = _torchrec_plan(case, share, rules, None)
        if plan is None:
            high = factor
        else:
            best, low = plan[0], factor
    return best


def main() -> int:
    parser = new_parser("bench.offload", __doc__)
    parser.add_argument("--models", type=at_least_one, default=10, help="default 10")
    parser.add_argument("--first", type=int, default=0, help="the first seed; default 0")
    parser.add_argument(
        "--torchrec", action="store_true", help="TorchRec's own planner, not fastplan's parity mode"
    )
    parser.add_argument("--moves", type=at_least_one, default=500_000, help="of each plan")
    add_arguments(parser, FILE)
    arguments = parser.parse_args()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report, _failed)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.models):
        with Progress(f"model {seed}"):
            planner = TorchRecPlanner if arguments.torchrec else EmbeddingShardingPlanner
            case = Case(draw_model(seed), planner)
            rows += [_row(case, share, arguments.moves) for share in SHARES]
    return {"moves": arguments.moves, "rows": rows, "checks": _checks(rows)}


def _row(case: Case, share: float, moves: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": case.model.name,
        "tables": len(case.names),
        "ranks": case.model.ranks,
        "share": share,
    }
    row["least"] = case.least(share)
    plans: dict[str, Any] = {"scaleup": by_scaleup(case, share), "uniform": by_uniform(case, share)}
    for name, minimize in OBJECTIVES.items():
        try:
            plans[name], row[f"{name}_facts"] = by_fastplan(case, share, moves, minimize)
        except PlannerError:
            plans[name] = None
    for name, plan in plans.items():
        row[name] = None if plan is None else case.host_bytes(plan)
    return row


def ratios(rows: list[dict[str, Any]], side: str, own: str) -> list[float]:
    """Bytes of a side by those of another, where both have a plan."""
    pairs = [(row[side], row[own]) for row in rows]
    return [
        math.inf if b == 0 else a / b
        for a, b in pairs
        if a is not None and b is not None and a + b > 0
    ]


def _checks(rows: list[dict[str, Any]]) -> dict[str, bool]:
    found = ratios(rows, "scaleup", "bytes")
    return {
        "TorchRec's scale-up proposer never moves fewer bytes": min(found, default=1) >= 1,
        "it moves at least 2 x the bytes in the median": statistics.median(found or [0]) >= 2,
    }


def _report(result: dict[str, Any]) -> str:
    sides = (*OBJECTIVES, "scaleup", "uniform", "least")
    lines = []
    for row in result["rows"]:
        both = ratios([row], "scaleup", "bytes")
        sizes = [_megabytes(row[side]) for side in sides]
        lines.append(
            [row["model"], f"{row['share']:.0%}", *sizes, f"{both[0]:.2f}" if both else "-"]
        )
    texts = [table(["model", "HBM", *sides, "scaleup / bytes"], lines)]
    for side, own in itertools.product(("scaleup", "uniform"), (*OBJECTIVES, "least")):
        found = ratios(result["rows"], side, own)
        if found:
            texts.append(
                f"{side} / {own}: median {statistics.median(found):.2f}, "
                f"least {min(found):.2f}, n = {len(found)}"
            )
    return "\n".join([*texts, verdicts(result["checks"])])


def _megabytes(size: float | None) -> str:
    return "no plan" if size is None else f"{size / 1e6:.2f}"


def _failed(result: dict[str, Any]) -> bool:
    """Whether fastplan has no plan where TorchRec has one."""
    return any(row["bytes"] is None and row["scaleup"] is not None for row in result["rows"])


if __name__ == "__main__":
    raise SystemExit(main())
