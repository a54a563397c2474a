"""The tasks of a rank: measuring plans turn by turn, and running micro-benchmarks."""

from __future__ import annotations

import gc
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from fastplan import load_plan
from fastplan.measure.cases import ADAM, COPY, HOST_COPY, LOOKUP, ROWWISE_ADAGRAD, WORLD, Case
from fastplan.measure.devices import RankGroup
from fastplan.measure.inputs import generate_batch, module_inputs
from fastplan.measure.processes import Heartbeats
from fastplan.measure.settings import (
    MODEL,
    POINTS,
    ROUNDS,
    MeasureError,
    Settings,
    Turn,
    WorkerConfig,
    append_line,
    plan_file,
)
from fastplan.measure.step import Inputs, Trainer, build, to_device
from fastplan.model.references import find
from fastplan.spec.model import ModelSpec
from fastplan.spec.read import read_spec
from fastplan.spec.stock import CACHE_LOAD_FACTOR


def measure_plans(folder: Path, config: WorkerConfig, beats: Heartbeats) -> None:
    """Measures every turn; rank 0 writes a line for each finished turn."""
    settings = Settings(**config.settings)
    spec = read_spec(folder / MODEL)
    with RankGroup(config.device, config.timeout) as ranks:
        beats.stage("inputs")
        batches = list(_batches(spec, settings, ranks))
        stage = _Stage(folder, config, spec, ranks, beats)
        # The first run in a process needs more memory and time, so it is not counted.
        stage.run(config.turns[0], batches, replace(settings, steps=1, warmup=1, resident=False))
        for turn in config.turns:
            own = stage.run(turn, batches, settings)
            beats.stage("gather")
            found = ranks.gather(own)
            if found is not None:
                append_line(folder / ROUNDS, json.dumps({**turn._asdict(), "ranks": found}))
            ranks.barrier()
    beats.stage("end")


class _Stage:
    """Runs the turns of plans on one rank."""

    def __init__(
        self,
        folder: Path,
        config: WorkerConfig,
        spec: ModelSpec,
        ranks: RankGroup,
        beats: Heartbeats,
    ) -> None:
        self._folder = folder
        self._target = config.target
        self._spec = spec
        self._ranks = ranks
        self._beats = beats
        self._resident: dict[int, tuple[Trainer, int]] = {}  # by plan, with its peak memory

    def run(self, turn: Turn, batches: list[Inputs], settings: Settings) -> dict[str, Any]:
        """Returns this rank's measurements of the turn's plan."""
        device = self._ranks.device
        self._beats.turn(turn.plan, turn.round)
        trainer, peak = self._resident.get(turn.plan, (None, 0))
        if trainer is None:
            trainer = self._shard(turn.plan)
        with_parts = settings.part_rounds is None or turn.round < settings.part_rounds
        steps = self._time_steps(trainer, batches, settings)
        parts = self._time_parts(trainer, batches, settings) if with_parts else {}
        if turn.plan not in self._resident:
            peak = device.peak_memory()
            if settings.resident:
                self._resident[turn.plan] = trainer, peak
        del trainer
        gc.collect()  # sharded modules have cycles; the next plan needs the memory
        return {
            "rank": self._ranks.rank,
            "host": socket.gethostname(),
            "device": device.name,
            "steps": steps,
            "parts": parts,
            "peak_memory": peak,
        }

    def _shard(self, number: int) -> Trainer:
        self._beats.stage("shard")
        model = build(self._spec, self._target)
        plan = load_plan(plan_file(self._folder, number), model.module, sharders=model.sharders)
        self._ranks.device.begin_memory()
        return Trainer(model, plan, self._spec, self._ranks.device)

    def _time_steps(
        self, trainer: Trainer, batches: list[Inputs], settings: Settings
    ) -> list[float]:
        waiting = itertools.cycle(batches)
        # Each batch at least once: new shapes cost more the first time.
        is_new = not any(trainer is known for known, _ in self._resident.values())
        for _ in range(max(settings.warmup, len(batches)) if is_new else settings.warmup):
            self._together("warm-up")
            trainer.step(next(waiting))
        steps = []
        for _ in range(settings.steps):
            self._together("step")
            steps.append(trainer.step(next(waiting)))
        return steps

    def _time_parts(
        self, trainer: Trainer, batches: list[Inputs], settings: Settings
    ) -> dict[str, list[float]]:
        waiting = itertools.cycle(batches)
        parts: dict[str, list[float]] = {}
        trainer.parts(next(waiting), self._ranks.barrier)
        for _ in range(max(3, settings.steps // 2)):
            self._beats.stage("parts of a step")
            for part, seconds in trainer.parts(next(waiting), self._ranks.barrier).items():
                parts.setdefault(part, []).append(seconds)
        return parts

    def _together(self, stage: str) -> None:
        self._beats.stage(f"wait for {stage}")
        self._ranks.barrier()
        self._beats.stage(stage)


def _batches(spec: ModelSpec, settings: Settings, ranks: RankGroup) -> Iterator[Inputs]:
    if settings.dataset is not None:
        yield from _own_batches(settings, module_paths(spec), ranks)
        return
    inputs = module_inputs(spec)
    for number in range(settings.batches):
        yield {
            module.path: to_device(
                generate_batch(module, spec.batch_size, settings, ranks.rank, number, position),
                ranks.device,
            )
            for position, module in enumerate(inputs)
        }


def module_paths(spec: ModelSpec) -> list[str]:
    """Returns the paths of the spec's modules, in order."""
    return list(dict.fromkeys(table.module for table in spec.tables))


def _own_batches(settings: Settings, paths: list[str], ranks: RankGroup) -> Iterator[Inputs]:
    """Yields batches of the user's function, called with this rank and the number of ranks."""
    assert settings.dataset is not None
    function = find(settings.dataset)
    found = list(itertools.islice(function(ranks.rank, ranks.count), settings.batches))
    if not found:
        raise MeasureError(f"{settings.dataset} has no batch for rank {ranks.rank}")
    for batch in found:
        by_module = batch if isinstance(batch, dict) else dict.fromkeys(paths, batch)
        missing = [path for path in paths if path not in by_module]
        if missing:
            raise MeasureError(f"{settings.dataset} has no input for module {missing[0]}")
        yield {path: by_module[path].to(ranks.device.torch) for path in paths}


_LOCATIONS = {
    "fused": EmbeddingLocation.DEVICE,
    "fused_uvm": EmbeddingLocation.MANAGED,
    "fused_uvm_caching": EmbeddingLocation.MANAGED_CACHING,
}
_OPTIMIZERS = {
    ROWWISE_ADAGRAD: EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    ADAM: EmbOptimType.ADAM,
}
_WARM_UP = 2
_FILL_POOLING = 64  # ids per bag while the cache is filled, so that outputs are small


class _Benchmark(NamedTuple):
    """What a case runs.

    Attributes:
        works: By name; run in order, each timed.
        prepare: Called before each repetition, not timed.
    """

    works: dict[str, Callable[[], Any]]
    prepare: Callable[[], Any] = lambda: None


def run_benchmarks(folder: Path, config: WorkerConfig, beats: Heartbeats) -> None:
    """Runs the cases of a configuration; rank 0 writes a line for each."""
    repetitions = int(config.settings["repetitions"])
    with RankGroup(config.device, config.timeout) as ranks:
        benchmarks = _Benchmarks(ranks)
        for number, content in enumerate(config.settings["cases"]):
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
    """Runs each kind of case with tensors on this rank's device."""

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks
        self._device = ranks.device
        self._local = dist.group.WORLD
        if ranks.count > ranks.local_count:
            self._local, _ = dist.new_subgroups(group_size=ranks.local_count)

    def run(self, case: Case, repetitions: int) -> dict[str, list[float]]:
        """Returns the seconds of each repetition, by work."""
        works, prepare = self._benchmark(case)
        found: dict[str, list[float]] = {name: [] for name in works}
        for number in range(_WARM_UP + repetitions):
            prepare()
            for name, work in works.items():
                self._device.wait()
                self._ranks.barrier()
                begin = self._device.mark()
                work()
                end = self._device.mark()
                self._device.wait()
                if number >= _WARM_UP:
                    found[name].append(self._device.seconds(begin, end))
        return found

    def _benchmark(self, case: Case) -> _Benchmark:
        if case.kind == LOOKUP:
            return self._lookup(case)
        if case.kind in (COPY, HOST_COPY):
            return self._copy(case)
        return self._collective(case)

    def _copy(self, case: Case) -> _Benchmark:
        there = torch.ones(case.bytes // 4, device=self._device.torch)
        here = torch.ones_like(there)
        if case.kind == HOST_COPY:
            here = torch.ones(case.bytes // 4).pin_memory()
        return _Benchmark({"copy": lambda: there.copy_(here, non_blocking=True)})

    def _collective(self, case: Case) -> _Benchmark:
        group = dist.group.WORLD if case.scope == WORLD else self._local
        count = dist.get_world_size(group)
        # The same number of elements for each rank.
        whole = torch.ones(max(1, case.bytes // 4 // count) * count, device=self._device.torch)
        part = whole[: len(whole) // count].clone()
        other = torch.empty_like(whole)
        works: dict[str, Callable[[], Any]] = {
            "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(other, part, group=group),
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
        }
        return _Benchmark({case.kind: works[case.kind]})

    def _lookup(self, case: Case) -> _Benchmark:
        on_cpu = self._device.torch.type == "cpu"
        place = EmbeddingLocation.HOST if on_cpu else _LOCATIONS[case.kernel]
        kind = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
        kernel = SplitTableBatchedEmbeddingBagsCodegen(
            embedding_specs=[(case.rows, case.dim, place, kind)] * case.tables,
            cache_load_factor=CACHE_LOAD_FACTOR,
            optimizer=_OPTIMIZERS[case.optimizer],
            learning_rate=0.01,
            pooling_mode=PoolingMode.SUM,
            device=self._device.torch,
        )
        count = case.tables * case.samples * case.pooling
        random = torch.Generator().manual_seed(1 + self._ranks.rank)
        offsets = torch.arange(0, count + 1, case.pooling, device=self._device.torch)
        weights = torch.ones(count, device=self._device.torch) if case.weighted else None
        gradient = torch.full(
            (case.samples, case.tables * case.dim), 1e-3, device=self._device.torch
        )
        indices: list[Any] = [None]
        output: list[Any] = [None]

        def draw() -> None:
            ids = torch.randint(case.rows, (count,), generator=random)
            indices[0] = ids.to(self._device.torch)

        def forward() -> None:
            output[0] = kernel(indices[0], offsets, weights)

        draw()
        works: dict[str, Callable[[], Any]] = {
            "forward": forward,
            "backward": lambda: output[0].backward(gradient),
        }
        if place != EmbeddingLocation.MANAGED_CACHING:
            return _Benchmark(works)
        # The same ids again would all be in the cache. With new ones, a full cache holds its share.
        self._fill_cache(kernel, case)
        return _Benchmark(works, draw)

    def _fill_cache(self, kernel: Any, case: Case) -> None:
        """Reads as many rows as the cache holds."""
        bags = max(1, round(CACHE_LOAD_FACTOR * case.rows) // _FILL_POOLING)
        rows = torch.arange(bags * _FILL_POOLING, device=self._device.torch) % case.rows
        ends = torch.arange(
            0, case.tables * len(rows) + 1, _FILL_POOLING, device=self._device.torch
        )
        weights = torch.ones(case.tables * len(rows), device=self._device.torch)
        with torch.no_grad():
            kernel(rows.repeat(case.tables), ends, weights if case.weighted else None)
