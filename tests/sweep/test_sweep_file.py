"""Reading sweep files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastplan.files.document import SpecError
from fastplan.sweep.file import read_sweep
from fastplan.sweep.sweep import cells
from tests.sweep.samples import model, write_files

FULL = """
models: [small.yaml, {spec: large.yaml, name: big}]
skus: [h100, a100-80]
hosts: [1, 2]
local_world_size: 4
batch_sizes: [2k, 4096]
precisions: [fp32, fp16]
global_batch: true
"""
SKU = "skus:\n  mine: {like: h100, hbm: 40GiB, price: 1.5}\n  other: {like: h100}\n"


def test_all_fields_are_read(tmp_path: Path) -> None:
    found = read_sweep(write_files(tmp_path, FULL, small=10, large=1000))
    assert [spec.name for spec in found.models] == ["small", "big"]
    assert [spec.tables[1].rows for spec in found.models] == [10, 1000]
    assert [sku.name for sku in found.skus] == ["h100", "a100-80"]
    assert (found.hosts, found.world_sizes, found.local_world_size) == ((1, 2), (), 4)
    assert (found.batch_sizes, found.global_batch) == ((2000, 4096), True)
    assert found.precisions == ("fp32", "fp16")


def test_only_models_are_required_and_a_single_value_needs_no_list(tmp_path: Path) -> None:
    found = read_sweep(write_files(tmp_path, "models: small.yaml\nskus: h100\nworld_sizes: 8\n"))
    assert len(cells(found)) == 1
    found = read_sweep(write_files(tmp_path, "models: [small.yaml]"))
    assert (found.skus, found.world_sizes, found.batch_sizes) == ((), (), ())


def test_json_works_too(tmp_path: Path) -> None:
    write_files(tmp_path, "")
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({"models": ["small.yaml"], "world_sizes": [8]}))
    assert read_sweep(file).world_sizes == (8,)
    file.write_text('{\n"models": ["small.yaml"],\n"world_sizes": [8,\n 0]\n}')
    with pytest.raises(SpecError, match=r"sweep.json:4: world_sizes\[1\]: must be a whole number"):
        read_sweep(file)


def test_files_are_found_beside_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "my.yaml").write_text(SKU)
    file = write_files(folder, "models: [small.yaml]\nskus: ['my.yaml:mine', h100]\n")
    monkeypatch.chdir(tmp_path)
    for path in (file, Path("there/sweep.yaml")):
        found = read_sweep(path)
        assert [(sku.name, sku.price) for sku in found.skus] == [("mine", 1.5), ("h100", None)]
    absolute = write_files(folder, f"models: ['{folder / 'small.yaml'}']")
    assert read_sweep(absolute).models[0].name == "small"


def test_real_models_go_to_the_loader(tmp_path: Path) -> None:
    asked = []

    def load(target: str) -> object:
        asked.append(target)
        return model(target)

    text = "models: [small.yaml, my_pkg.models:build, {spec: 'pkg:make', name: made}]"
    found = read_sweep(write_files(tmp_path, text), load)  # type: ignore[arg-type]
    assert asked == ["my_pkg.models:build", "pkg:make"]
    assert [spec.name for spec in found.models] == ["small", "my_pkg.models:build", "made"]
    with pytest.raises(SpecError, match=r"models\[1\]: my_pkg.models:build is not a spec file"):
        read_sweep(write_files(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("skus: [h100]", "models: must have at least one model"),
        ("models: []", ":1: models: must have at least one model"),
        ("models: [small.yaml]\nworldsizes: [8]", ":2: unknown field `worldsizes`; did you mean"),
        ("models: [small.yaml]\nworld_sizes: [8, many]", r":2: world_sizes\[1\]: must be a whole"),
        ("models: [small.yaml]\nworld_sizes: [0]", r"world_sizes\[0\]: must be a whole number"),
        ("models: [small.yaml]\nworld_sizes: [2000000]", r"world_sizes\[0\]: must be a whole"),
        ("models: [small.yaml]\nhosts: 1\nworld_sizes: 8", ":2: hosts: and `world_sizes` both"),
        ("models: [small.yaml]\nprecisions: [fp31]", "did you mean `fp32`"),
        ("models: [small.yaml]\nglobal_batch: 1", ":2: global_batch: must be true or false"),
        ("models: [small.yaml]\nglobal_batch: true", "`global_batch` needs `batch_sizes`"),
        ("models: [small.yaml]\nskus:\n  - h100\n  - h10000", r":4: skus\[1\]: no hardware is"),
        ("models: [small.yaml]\nskus: [no.yaml]", "no.yaml: can't be read"),
        ("models: [small.yaml, none.yaml]", r":1: models\[1\]: there is no file"),
        (f"models: [{'a' * 300}.yaml]", r":1: models\[0\]: there is no file"),
        ("models: [{spec: none.yaml}]", r":1: models\[0\].spec: there is no file"),
        ("models: [{name: x}]", r"models\[0\].spec: is missing"),
        ("models: [{spec: small.yaml, nam: x}]", r"models\[0\]: unknown field `nam`"),
        ("models: [3]", r":1: models\[0\]: must be a spec file"),
        ("models: [[small.yaml]]", r"models\[0\]: must be a spec file.* not a list"),
        ("models: [small.yaml, small.yaml]", "has two that are called 'small'"),
        ("models: [small.yaml]\nskus: [h100, H-100]", "has two that are called 'h100'"),
        ("models: [small.yaml", "sweep.yaml:"),
        ("- models", "must be a mapping"),
        ("models: &a [*a]", "sweep.yaml"),
        ("", "sweep.yaml"),
    ],
)
def test_errors_say_where_and_what(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_sweep(write_files(tmp_path, text))


def test_errors_in_a_models_file_name_that_file(tmp_path: Path) -> None:
    file = write_files(tmp_path, "models: [bad.yaml]")
    (tmp_path / "bad.yaml").write_text("model: bad\ntables:\n  - {name: t, rows: -1, dim: 8}\n")
    with pytest.raises(SpecError, match=r"bad.yaml:3: tables\[0\].rows"):
        read_sweep(file)
