"""What a rank does to measure plans: turn by turn, shard, warm up, time, gather."""

from __future__ import annotations

import gc
import itertools
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastplan import load_plan
from fastplan.measure.folder import MODEL, ROUNDS, append_line, plan_file
from fastplan.measure.inputs import draw, module_inputs
from fastplan.measure.models import build
from fastplan.measure.progress import Beats
from fastplan.measure.ranks import Ranks
from fastplan.measure.settings import Assignment, MeasureError, Settings, Turn
from fastplan.measure.step import Inputs, Trainer, to_device
from fastplan.model.references import find
from fastplan.spec.model import ModelSpec
from fastplan.spec.read import read_spec


def measure_plans(folder: Path, assignment: Assignment, beats: Beats) -> None:
    """Measures every turn; rank 0 writes a line for each that all ranks have finished."""
    settings = Settings(**assignment.settings)
    spec = read_spec(folder / MODEL)
    with Ranks(assignment.device, assignment.timeout) as ranks:
        beats.stage("inputs")
        batches = list(_batches(spec, settings, ranks))
        stage = _Stage(folder, assignment.target, spec, ranks, beats)
        # What a process does for the first time costs more memory and time: it is not counted.
        stage.run(assignment.turns[0], batches, replace(settings, steps=1, warmup=1))
        for turn in assignment.turns:
            own = stage.run(turn, batches, settings)
            beats.stage("gather")
            found = ranks.gather(own)
            if found is not None:
                append_line(folder / ROUNDS, json.dumps({**turn._asdict(), "ranks": found}))
            ranks.together()
    beats.stage("end")


class _Stage:
    """Where plans have their turns, on one rank."""

    def __init__(
        self,
        folder: Path,
        target: str | None,
        spec: ModelSpec,
        ranks: Ranks,
        beats: Beats,
    ) -> None:
        self._folder = folder
        self._target = target
        self._spec = spec
        self._ranks = ranks
        self._beats = beats

    def run(self, turn: Turn, batches: list[Inputs], settings: Settings) -> dict[str, Any]:
        """What this rank has measured of the turn's plan."""
        device = self._ranks.device
        self._beats.turn(turn.plan, turn.round)
        self._beats.stage("shard")
        model = build(self._spec, self._target)
        plan = load_plan(plan_file(self._folder, turn.plan), model.module, sharders=model.sharders)
        device.begin_memory()
        trainer = Trainer(model, plan, self._spec, device)
        del model, plan
        steps, parts = self._time(trainer, batches, settings)
        peak = device.peak_memory()
        del trainer
        gc.collect()  # of cycles in sharded modules, before the next plan needs the memory
        return {
            "rank": self._ranks.rank,
            "host": socket.gethostname(),
            "device": device.name,
            "steps": steps,
            "parts": parts,
            "peak_memory": peak,
        }

    def _time(
        self, trainer: Trainer, batches: list[Inputs], settings: Settings
    ) -> tuple[list[float], dict[str, list[float]]]:
        waiting = itertools.cycle(batches)
        # Each batch once at least: shapes that are new cost more the first time.
        for _ in range(max(settings.warmup, len(batches))):
            self._together("warm-up")
            trainer.step(next(waiting))
        steps = []
        for _ in range(settings.steps):
            self._together("step")
            steps.append(trainer.step(next(waiting)))
        parts: dict[str, list[float]] = {}
        trainer.parts(next(waiting), self._ranks.together)
        for _ in range(max(3, settings.steps // 2)):
            self._beats.stage("parts of a step")
            for part, seconds in trainer.parts(next(waiting), self._ranks.together).items():
                parts.setdefault(part, []).append(seconds)
        return steps, parts

    def _together(self, stage: str) -> None:
        self._beats.stage(f"wait for {stage}")
        self._ranks.together()
        self._beats.stage(stage)


def _batches(spec: ModelSpec, settings: Settings, ranks: Ranks) -> Iterator[Inputs]:
    if settings.dataset is not None:
        yield from _own_batches(settings, module_paths(spec), ranks)
        return
    inputs = module_inputs(spec)
    for number in range(settings.batches):
        yield {
            module.path: to_device(
                draw(module, spec.batch_size, settings, ranks.rank, number, position), ranks.device
            )
            for position, module in enumerate(inputs)
        }


def module_paths(spec: ModelSpec) -> list[str]:
    return list(dict.fromkeys(table.module for table in spec.tables))


def _own_batches(settings: Settings, paths: list[str], ranks: Ranks) -> Iterator[Inputs]:
    """Batches of the user's function, called with this rank and the number of ranks."""
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
