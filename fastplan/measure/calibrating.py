"""What a rank does to calibrate: every micro-benchmark, on all ranks at once, as in training."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from fastplan.measure.cases import COPY, HOST_COPY, LOOKUP, WORLD, Case
from fastplan.measure.folder import POINTS, append_line
from fastplan.measure.progress import Beats
from fastplan.measure.ranks import Ranks
from fastplan.measure.settings import Assignment

_LOCATIONS = {
    "fused": EmbeddingLocation.DEVICE,
    "fused_uvm": EmbeddingLocation.MANAGED,
    "fused_uvm_caching": EmbeddingLocation.MANAGED_CACHING,
}
_WARM_UP = 2

Works = dict[str, Callable[[], Any]]  # by name; run one after the other, each timed


def run_benchmarks(folder: Path, assignment: Assignment, beats: Beats) -> None:
    """Runs the assignment's cases; rank 0 writes a line for each."""
    repetitions = int(assignment.settings["repetitions"])
    with Ranks(assignment.device, assignment.timeout) as ranks:
        benchmarks = _Benchmarks(ranks)
        for number, content in enumerate(assignment.settings["cases"]):
            case = Case(**content)
            beats.turn(number, 0)
            beats.stage(case.kind)
            seconds = benchmarks.run(case, repetitions)
            own = {"host": socket.gethostname(), "device": ranks.device.name, "seconds": seconds}
            found = ranks.gather(own)
            if found is not None:
                append_line(folder / POINTS, json.dumps({"case": content, "ranks": found}))
    beats.stage("end")


class _Benchmarks:
    """The works of each kind of case, with their tensors on this rank's device."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._device = ranks.device
        self._local = dist.group.WORLD
        if ranks.count > ranks.local_count:
            self._local, _ = dist.new_subgroups(group_size=ranks.local_count)

    def run(self, case: Case, repetitions: int) -> dict[str, list[float]]:
        """Seconds of each repetition, by work."""
        works = self._works(case)
        found: dict[str, list[float]] = {name: [] for name in works}
        for number in range(_WARM_UP + repetitions):
            for name, work in works.items():
                self._device.wait()
                self._ranks.together()
                begin = self._device.mark()
                work()
                end = self._device.mark()
                self._device.wait()
                if number >= _WARM_UP:
                    found[name].append(self._device.seconds(begin, end))
        return found

    def _works(self, case: Case) -> Works:
        if case.kind == LOOKUP:
            return self._lookup(case)
        if case.kind in (COPY, HOST_COPY):
            return self._copy(case)
        return self._collective(case)

    def _copy(self, case: Case) -> Works:
        there = torch.ones(case.bytes // 4, device=self._device.torch)
        here = torch.ones_like(there)
        if case.kind == HOST_COPY:
            here = torch.ones(case.bytes // 4).pin_memory()
        return {"copy": lambda: there.copy_(here, non_blocking=True)}

    def _collective(self, case: Case) -> Works:
        group = dist.group.WORLD if case.scope == WORLD else self._local
        count = dist.get_world_size(group)
        # A whole number of elements for each rank.
        whole = torch.ones(max(1, case.bytes // 4 // count) * count, device=self._device.torch)
        part = whole[: len(whole) // count].clone()
        other = torch.empty_like(whole)
        works: Works = {
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(other, part, group=group),
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
        }
        return {case.kind: works[case.kind]}

    def _lookup(self, case: Case) -> Works:
        on_cpu = self._device.torch.type == "cpu"
        place = EmbeddingLocation.HOST if on_cpu else _LOCATIONS[case.kernel]
        kind = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
        kernel = SplitTableBatchedEmbeddingBagsCodegen(
            embedding_specs=[(case.rows, case.dim, place, kind)] * case.tables,
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=0.01,
            pooling_mode=PoolingMode.SUM,
            device=self._device.torch,
        )
        bags = case.tables * case.samples
        random = torch.Generator().manual_seed(1 + self._ranks.rank)
        ids = torch.randint(case.rows, (bags * case.pooling,), generator=random)
        indices = ids.to(self._device.torch)
        offsets = torch.arange(0, len(ids) + 1, case.pooling, device=self._device.torch)
        weights = torch.ones(len(ids), device=self._device.torch) if case.weighted else None
        gradient = torch.full(
            (case.samples, case.tables * case.dim), 1e-3, device=self._device.torch
        )
        output: list[Any] = [None]

        def forward() -> None:
            output[0] = kernel(indices, offsets, weights)

        return {"forward": forward, "backward": lambda: output[0].backward(gradient)}
