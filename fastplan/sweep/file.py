"""Reads sweep files. Whatever is wrong in one is a SpecError with file, line and field."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fastplan.spec.document import read_document
from fastplan.spec.fields import Fields
from fastplan.spec.hardware import Hardware, HardwareError, hardware_of_file
from fastplan.spec.model import ModelSpec
from fastplan.spec.nodes import Node, SpecError, below
from fastplan.spec.read import read_spec
from fastplan.spec.references import CodeNotTrusted, is_reference
from fastplan.spec.units import shown
from fastplan.sweep.sweep import PRECISIONS, Sweep, SweepError

SWEEP_FIELDS = (
    "models",
    "skus",
    "world_sizes",
    "hosts",
    "local_world_size",
    "batch_sizes",
    "global_batch",
    "precisions",
)
MODEL_FIELDS = ("spec", "name")

LoadModel = Callable[[str], ModelSpec]

_SKU_FILE = re.compile(r"(.+\.(?:ya?ml|json))(:[^:/\\]+)?", re.IGNORECASE | re.DOTALL)


def read_sweep(path: str | os.PathLike[str], load_model: LoadModel | None = None) -> Sweep:
    """The sweep in a YAML or JSON file. Files that it names are relative to its own place.

    `load_model` gets what is named as `package.module:function`, a real model, and returns its
    spec; without it, models are spec files only. Give one that imports what it gets only for files
    whose writer you trust. Raises SpecError with file, line and field.
    """
    document = read_document(path)
    root = Fields(document, document.root, "", known=SWEEP_FIELDS)
    folder = Path(document.file).parent
    models = tuple(_models(root, folder, load_model))
    if not models:
        raise root.error("models", "must have at least one model")
    if "hosts" in root and "world_sizes" in root:
        raise root.error("hosts", "and `world_sizes` both say how large clusters are: give one")
    try:
        return Sweep(
            models=models,
            skus=tuple(_skus(root, folder)),
            world_sizes=root.wholes("world_sizes", (), least=1),
            hosts=root.wholes("hosts", (), least=1),
            local_world_size=root.whole("local_world_size", None, least=1),
            batch_sizes=root.wholes("batch_sizes", (), least=1),
            global_batch=root.flag("global_batch", False),
            precisions=root.texts("precisions", (), choices=PRECISIONS),
        )
    except SweepError as error:
        raise root.error(None, str(error)) from error


def _models(root: Fields, folder: Path, load_model: LoadModel | None) -> Iterator[ModelSpec]:
    for place, node in _listed(root, "models"):
        name = None
        if isinstance(node.value, dict):
            fields = Fields(root.document, node, place, known=MODEL_FIELDS)
            target, name = fields.text("spec"), fields.text("name", None)
            place = below(place, "spec")
        elif isinstance(node.value, str):
            target = node.value
        else:
            raise _error(
                root,
                place,
                node,
                "must be a spec file, package.module:function, or {spec: ..., name: ...}, "
                f"not {shown(node.value)}",
            )
        spec = _model(root, place, node, target, folder, load_model)
        yield spec if name is None else replace(spec, name=name)


def _model(
    root: Fields, place: str, node: Node, target: str, folder: Path, load_model: LoadModel | None
) -> ModelSpec:
    file = folder / target
    if not is_reference(target) or file.exists():
        try:
            return read_spec(file)
        except SpecError as error:
            if error.line is None and not file.exists():
                raise _error(root, place, node, f"there is no file {file}") from error
            raise
    if load_model is None:
        raise _error(root, place, node, f"{target} is no spec file; export it to one first")
    try:
        return load_model(target)
    except CodeNotTrusted as error:
        raise _error(root, place, node, str(error)) from error


def _skus(root: Fields, folder: Path) -> Iterator[Hardware]:
    names = root.texts("skus", ())
    for name, (place, node) in zip(names, _listed(root, "skus"), strict=True):
        in_file = _SKU_FILE.fullmatch(name)
        where = f"{folder / in_file[1]}{in_file[2] or ''}" if in_file else name
        try:
            yield hardware_of_file(where)
        except HardwareError as error:
            raise _error(root, place, node, str(error)) from error


def _listed(root: Fields, name: str) -> list[tuple[str, Node]]:
    """The entries of a list and their places; a single value counts as a list of one."""
    node = root.node(name)
    if node is None:
        return []
    if not isinstance(node.value, list):
        return [(name, node)]
    return [(below(name, i), item) for i, item in enumerate(node.value)]


def _error(root: Fields, place: str, node: Node, problem: str) -> SpecError:
    document = root.document
    return SpecError(document.file, document.line_of(node, place), place, problem)
