"""What is written is read back as it was."""

import math

import pytest

from fastplan.files.document import parse_document
from fastplan.model.request import Partitioner, Proposer
from fastplan.spec.hardware import find_hardware
from fastplan.spec.ids import IdFields
from fastplan.spec.model import (
    CacheSpec,
    MenuEntry,
    ModelSpec,
    ModuleSpec,
    ReservationSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
)
from fastplan.spec.read import read_spec, spec_of
from fastplan.spec.write import spec_text, to_plain, write_spec

FULL = ModelSpec(
    name="a: b # c",
    batch_size=4096,
    torchrec="1.9.2",
    modules={
        "": ModuleSpec(weighted=True),
        "deep.path": ModuleSpec(
            kind="embedding_collection",
            cache_load_factor=1e-05,
            compute_kernels={"row_wise": ("fused", "fused_uvm")},
            sharding_types=("row_wise",),
            wire=(2.0, 2.0, 1.0, 4.0),
            pooled=True,
        ),
    },
    tables=(
        TableSpec(name="no", rows=3, dim=4, module=""),
        TableSpec(
            name='quote " \\ \n \x00 \x85 \U0001f600 <b>',
            rows=40_000_000,
            dim=128,
            module="deep.path",
            dtype="fp16",
            features=("f", "on"),
            pooling=(1.5, 2.0),
            poolings=(1.0, 1e-22),
            batch_sizes=(3, 4),
            weighted=True,
            sharding_types=("row_wise",),
            ids=IdFields(
                ids=10**12,
                samples=3,
                unique=((1.0, 1.0), (1e12, 1e-05)),
                misses=((0.5, 0.1),),
                pooling_quantiles=((1e-05, 0.0), (1.0, 7.0)),
                zipf_error=0.25,
            ),
            cache=CacheSpec(load_factor=0.1, expected_lookups=3.5, miss_rate=0.25),
            optimizer="adam",
            menu="menu0",
            exact={"perf_inputs": 1e18, "expected_lookups": math.nan},
            settings={"cache_params": {"load_factor": 0.1}, "x": [1, None, "a"]},
        ),
    ),
    menus={"menu0": (MenuEntry("row_wise", "fused", 1234.5, (1.0, 1.0, 1.0, 0.0), None),)},
    topology=TopologySpec(hardware=find_hardware("h100"), world_size=16, rank_hbm=(1,) * 16),
    reservation=ReservationSpec(policy="percentage", percentage=0.1),
    search=SearchSpec(
        proposers=(Proposer(kind="uniform", use_depth=False),),
        partitioner=Partitioner(memory_balanced=True),
        deterministic=True,
    ),
    cost={"prefetch_coefficients": (1e-7, 0.0, 1.0), "pipeline": "none"},
)


@pytest.mark.parametrize("format", ["yaml", "json"])
def test_everything_survives(format: str) -> None:
    text = spec_text(FULL, format)
    found = spec_of(parse_document(text.encode(), f"model.{format}"))
    assert repr(to_plain(found)) == repr(to_plain(FULL))
    assert repr(found.tables) == repr(FULL.tables)
    assert spec_text(found, format) == text


def test_defaults_are_left_out() -> None:
    spec = ModelSpec(name="m", tables=(TableSpec(name="t", rows=1, dim=4),))
    assert spec_text(spec) == "model: m\nbatch_size: 512\ntables:\n  - {name: t, rows: 1, dim: 4}\n"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    file = tmp_path / "model.json"
    write_spec(FULL, file)
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_spec(FULL, file)
    assert file.read_bytes() == before
    assert [*tmp_path.iterdir()] == [file]
    assert read_spec(file).name == FULL.name
