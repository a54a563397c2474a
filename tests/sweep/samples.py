"""Small models and sweeps to plan."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastplan.spec.hardware import Hardware, find_hardware
from fastplan.spec.model import ModelSpec, TableSpec, TopologySpec
from fastplan.sweep.rows import Row
from fastplan.sweep.sweep import Sweep

SPEC = """
model: {name}
batch_size: 1024
tables:
  - {{name: users, rows: 400k, dim: 64, pooling: 3}}
  - {{name: items, rows: {rows}, dim: 128, pooling: 20}}
"""


def model(name: str = "small", rows: int = 1_000_000, **fields: Any) -> ModelSpec:
    tables = (
        TableSpec(name="users", rows=400_000, dim=64, pooling=(3.0,)),
        TableSpec(name="items", rows=rows, dim=128, pooling=(20.0,)),
    )
    return ModelSpec(name=name, **{"tables": tables, "batch_size": 1024, **fields})


def hardware(name: str = "h100", **figures: Any) -> Hardware:
    return replace(find_hardware("h100"), name=name, **figures)


def tight(name: str = "tight", hbm: int = 8 << 30) -> Hardware:
    """Devices without host memory, so that tables either fit on them or nowhere."""
    return hardware(name, hbm=hbm, ddr=0, ssd=0)


def sweep(**axes: Any) -> Sweep:
    """Two world sizes of a small model, unless more is asked for."""
    given = {"models": (model(),), "skus": (hardware(),), "world_sizes": (2, 4), **axes}
    return Sweep(**given)


def own_topology(**fields: Any) -> TopologySpec:
    return TopologySpec(hardware=hardware("own"), **fields)


def row(**fields: Any) -> Row:
    """A row that fits."""
    given: dict[str, Any] = {
        "id": "1" * 20,
        "model": "m",
        "sku": "h100",
        "world_size": 8,
        "hosts": 1,
        "batch": 512,
        "batch_size": 512,
        "precision": "fp32",
        "fits": True,
        "rating": 10.0,
        "tier": "hbm",
        "headroom_bytes": 1 << 30,
        "headroom": 0.5,
        "hbm_bytes": 8 << 30,
        "ddr_bytes": 0,
        "ssd_bytes": 0,
        "key": "ab" * 20,
        "cache": "miss",
        "seconds": 0.01,
        **fields,
    }
    return Row(**given)


def unfit(**fields: Any) -> Row:
    """A row that does not fit."""
    none = dict.fromkeys(("rating", "hbm_bytes", "ddr_bytes", "ssd_bytes"))
    lack = {"headroom_bytes": -1 << 30, "headroom": -0.25}
    words = "about 1 GiB more HBM on every rank would be enough"
    return row(**{**none, **lack, "fits": False, "shortage": words, **fields})


def failure(**fields: Any) -> Row:
    """A row without an answer."""
    none = dict.fromkeys(("rating", "headroom", "headroom_bytes", "hbm_bytes", "ddr_bytes", "key"))
    return row(**{**none, "fits": None, "error": "it went wrong", "cache": "off", **fields})


class Inline(Executor):
    """Does it at once, and counts."""

    def __init__(self) -> None:
        self.tasks = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.tasks += 1
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def write_files(folder: Path, text: str, **rows: int) -> Path:
    """A sweep file beside spec files with so many rows each."""
    for name, count in (rows or {"small": 1_000_000}).items():
        (folder / f"{name}.yaml").write_text(SPEC.format(name=name, rows=count))
    file = folder / "sweep.yaml"
    file.write_text(text)
    return file
