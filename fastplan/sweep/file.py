"""Reads sweep files. Errors are SpecErrors with file, line and field."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from fastplan.files.codec import decode
from fastplan.files.document import Document, SpecError, Step, read_document
from fastplan.files.kinds import Text, choice, whole
from fastplan.model.limits import MOST_BATCH, MOST_RANKS
from fastplan.model.references import CodeNotTrusted, is_reference
from fastplan.model.units import shown
from fastplan.model.vocabulary import DTYPE_ALIASES
from fastplan.spec.hardware import Hardware, HardwareError, hardware_of_file
from fastplan.spec.model import ModelSpec
from fastplan.spec.read import read_spec
from fastplan.sweep.sweep import PRECISIONS, Sweep, SweepError

LoadModel = Callable[[str], ModelSpec]
Ranks = Annotated[int, whole(1, MOST_RANKS)]

_SKU_FILE = re.compile(r"(.+\.(?:ya?ml|json))(:[^:/\\]+)?", re.IGNORECASE | re.DOTALL)


class ModelFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model with a different name than in its spec."""

    spec: Text
    name: Text | None = None


class SweepFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep file."""

    models: Any = None  # strings and `ModelFields`, one or more
    skus: tuple[Text, ...] = ()
    world_sizes: tuple[Ranks, ...] = ()
    hosts: tuple[Ranks, ...] = ()
    local_world_size: Ranks | None = None
    batch_sizes: tuple[Annotated[int, whole(1, MOST_BATCH)], ...] = ()
    global_batch: bool = False
    precisions: tuple[Annotated[str, choice(PRECISIONS, DTYPE_ALIASES)], ...] = ()


def read_sweep(path: str | os.PathLike[str], load_model: LoadModel | None = None) -> Sweep:
    """Reads the sweep in a YAML or JSON file. Paths in it are relative to its folder.

    Args:
        path: The file.
        load_model: Returns the spec of a real model, named as `package.module:function`. Without
            it, models must be spec files. If it imports the function, use it only for files that
            you trust.

    Raises:
        SpecError: The file is invalid. The message has file, line and field.
    """
    document = read_document(path)
    content = decode(document, SweepFile)
    folder = Path(document.file).parent
    models = tuple(_models(document, folder, load_model))
    if not models:
        raise document.error(("models",), "must have at least one model")
    if "hosts" in document.root and "world_sizes" in document.root:
        problem = "and `world_sizes` both set the size of clusters: give one"
        raise document.error(("hosts",), problem)
    try:
        return Sweep(
            models=models,
            skus=tuple(_skus(document, content.skus, folder)),
            world_sizes=content.world_sizes,
            hosts=content.hosts,
            local_world_size=content.local_world_size,
            batch_sizes=content.batch_sizes,
            global_batch=content.global_batch,
            precisions=content.precisions,
        )
    except SweepError as error:
        raise document.error((), str(error)) from error


def _models(document: Document, folder: Path, load_model: LoadModel | None) -> Iterator[ModelSpec]:
    for steps in _entries(document, "models"):
        model, name = document.at(steps), None
        if isinstance(model, dict):
            fields = decode(document, ModelFields, steps)
            model, name, steps = fields.spec, fields.name, (*steps, "spec")
        elif not isinstance(model, str):
            raise document.error(
                steps,
                "must be a spec file, package.module:function, or {spec: ..., name: ...}, "
                f"not {shown(model)}",
            )
        spec = _model(document, steps, model, folder, load_model)
        yield spec if name is None else replace(spec, name=name)


def _model(
    document: Document,
    steps: tuple[Step, ...],
    target: str,
    folder: Path,
    load_model: LoadModel | None,
) -> ModelSpec:
    file = folder / target
    if not is_reference(target) or os.path.exists(file):
        try:
            return read_spec(file)
        except SpecError as error:
            if error.line is None and not os.path.exists(file):
                raise document.error(steps, f"there is no file {file}") from error
            raise
    if load_model is None:
        raise document.error(steps, f"{target} is not a spec file; export the model first")
    try:
        return load_model(target)
    except CodeNotTrusted as error:
        raise document.error(steps, str(error)) from error


def _skus(document: Document, names: tuple[str, ...], folder: Path) -> Iterator[Hardware]:
    for name, steps in zip(names, _entries(document, "skus"), strict=True):
        in_file = _SKU_FILE.fullmatch(name)
        where = f"{folder / in_file[1]}{in_file[2] or ''}" if in_file else name
        try:
            yield hardware_of_file(where)
        except HardwareError as error:
            raise document.error(steps, str(error)) from error


def _entries(document: Document, name: str) -> list[tuple[Step, ...]]:
    """Returns the places of a list's entries; a single value counts as a list of one."""
    value = document.root.get(name)
    if value is None:
        return []
    return [(name, i) for i in range(len(value))] if isinstance(value, list) else [(name,)]
