"""Spec files: what can be said, and what is told of mistakes."""

import json

import pytest

from fastplan.files.document import SpecError, parse_document
from fastplan.spec.model import DEFAULT_PROPOSERS, ModelSpec, TableSpec
from fastplan.spec.read import read_spec, spec_of, with_precision

SMALLEST = {
    "model": "dlrm",
    "batch_size": 4096,
    "tables": [{"name": "t0", "rows": 40000000, "dim": 128, "pooling": 3}],
}

SECTIONS = """
model: m
batch_size: 4k
modules:
  a.ebc: {weighted: true}
  b.ec: {kind: embedding_collection, wire: [2, 2, 2, 2]}
tables:
  - {name: t0, module: a.ebc, rows: 1.5M, dim: 64, pooling: [3, 2.5], features: [f, g]}
  - {name: t1, module: b.ec, rows: 1e6, dim: 32, sharding_types: table_wise, dtype: fp16,
     cache: {load_factor: 0.1}, key_value_cache: 16MiB}
topology: {sku: h100, world_size: 16, hbm: 79GiB, intra_host_bw: 900GB/s}
reservation: {policy: absolute, reserved: 8GiB}
search: {proposers: [{kind: greedy}], partitioner: {sort_by_perf: true}, timeout_seconds: 5}
cost: {pipeline: train_sparse_dist, at_peak_memory: true}
"""


def parse(text: str, name: str = "model.yaml") -> ModelSpec:
    return spec_of(parse_document(text.encode(), name))


def broken(text: str, name: str = "model.yaml") -> str:
    with pytest.raises(SpecError) as caught:
        parse(text, name)
    return str(caught.value)


def test_smallest_spec(tmp_path) -> None:
    file = tmp_path / "model.json"
    file.write_text(json.dumps(SMALLEST))
    spec = read_spec(file)
    assert (spec.name, spec.batch_size, len(spec.tables)) == ("dlrm", 4096, 1)
    table = spec.tables[0]
    assert (table.rows, table.dim, table.pooling, table.dtype) == (40_000_000, 128, (3.0,), "fp32")
    assert spec.search.proposers == DEFAULT_PROPOSERS
    assert spec.reservation.percentage == 0.15


def test_units_lists_and_sections() -> None:
    spec = parse(SECTIONS)
    first, second = spec.tables
    assert (spec.batch_size, first.rows, second.rows) == (4000, 1_500_000, 1_000_000)
    assert first.pooling == (3.0, 2.5) and second.sharding_types == ("table_wise",)
    assert second.key_value_cache == 16 << 20
    assert spec.topology.hardware.hbm == 79 << 30
    assert spec.topology.hardware.intra_host_bw == 900e6
    assert spec.topology.hardware.name == "h100"
    assert spec.reservation.reserved == 8 << 30
    assert spec.search.partitioner.sort_by_perf
    assert spec.cost == {"pipeline": "train_sparse_dist", "at_peak_memory": True}


def test_a_single_module_is_every_tables() -> None:
    spec = parse("model: m\nmodules: {deep.path: {}}\ntables: [{name: t, rows: 1, dim: 4}]")
    assert spec.tables[0].module == "deep.path"


TABLE = "model: m\ntables:\n  - {name: t, rows: 10, dim: 4%s}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TABLE % ", polling: 3", ("model.yaml:3:", "`polling`", "did you mean `pooling`?")),
        (TABLE % ", dtype: fp33", ("model.yaml:3: tables[0].dtype", "`fp32`")),
        (TABLE % ", sharding_types: [rowwise]", ("tables[0].sharding_types[0]", "`row_wise`")),
        (TABLE % ", pooling: -1", ("tables[0].pooling", "at least 0")),
        (TABLE % ", poolings: [1, 2]", ("tables[0].poolings", "2 entries", "has 1")),
        (TABLE % ", menu: x", ("tables[0].menu",)),
        (TABLE % ", cache: {expected_lookups: 3}", ("tables[0].cache", "`miss_rate`")),
        (TABLE % ", exact: {rowz: 3}", ("tables[0].exact", "did you mean `rows`?")),
        (TABLE % ", settings: 3", ("tables[0].settings", "mapping")),
        ("model: m\ntables: []\n", ("tables", "at least one")),
        ("model: m\ntables: [{name: t, dim: 4}]", ("tables[0].rows", "missing")),
        ("tables: [{name: t, rows: 3, dim: 4}]", ("model", "missing")),
        ("model: m\ntables: [{name: t, rows: 0, dim: 4}]", ("tables[0].rows", "at least 1")),
        (TABLE % "" + "  - {name: t, rows: 1, dim: 1}\n", ("model.yaml:4", "two tables", "'t'")),
        (TABLE % "" + "modules: {a: {}, b: {}}", ("tables[0].module", "'ebc' is not in")),
        (TABLE % ", module: ab" + "modules: {abc: {}, d: {}}\n", ("[0].module", "mean `abc`?")),
        (TABLE % ", module: c" + "modules: {a: {}}\n", ("tables[0].module", "not in `modules`")),
        (TABLE % "" + "modules: {a.b: {kind: bag}}", ('modules["a.b"].kind', "embedding_bag")),
        (TABLE % "" + "modules: {a: {wire: [1]}}", ("modules.a.wire", "four numbers")),
        (TABLE % "" + "menus: {x: []}", ("menus.x", "at least one option")),
        (
            TABLE % ""
            + "menus: {x: [{kernel: fused, sharding_type: row_wise, bandwidth: 3, fwd: 1}]}",
            ("menus.x[0].fwd", "four numbers"),
        ),
        (TABLE % "" + "topology: {sku: h1000}", ("topology.sku", "h100")),
        (TABLE % "" + "topology: {hbm: 80 GiBi}", ("topology.hbm",)),
        (TABLE % "" + "topology: {world_size: 0}", ("topology.world_size",)),
        (TABLE % "" + "reservation: {policy: heuristic}", ("reservation.policy", "`heuristical`")),
        (TABLE % "" + "search: {proposers: [{kind: greed}]}", ("proposers[0].kind", "`greedy`")),
        (TABLE % "" + "search: {proposers: []}", ("search.proposers", "at least one")),
        (TABLE % "" + "cost: {pipelin: none}", ("cost", "did you mean `pipeline`?")),
        (TABLE % "" + "torchrec: 1.7.0", ("torchrec", "1.8.0")),
    ],
)
def test_mistakes_are_told_with_place_and_way_out(text: str, told: tuple[str, ...]) -> None:
    message = broken(text)
    for part in told:
        assert part in message, message


def test_json_mistakes_have_lines_too() -> None:
    text = json.dumps(
        {**SMALLEST, "tables": [{"name": "t", "rows": 1, "dim": 1, "rovs": 2}]}, indent=1
    )
    assert (
        broken(text, "model.json")
        == "model.json:9: tables[0]: unknown field `rovs`; did you mean `rows`?"
    )


TABLE = "tables: [{name: t, rows: 9, dim: 8, pooling: [3, 2]}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cost: {pipeline: train_sparse}", "did you mean `train_sparse_dist`?"),
        ("cost: {device_kind: gpu}", "must be one of hbm, cpu, other, not 'gpu'"),
        ("cost: {perf_world_size: 0}", "perf_world_size: must be a whole number from 1"),
        ("cost: {prefetch_coefficients: [1, 2]}", "prefetch_coefficients: must be 3 numbers"),
        (
            TABLE.replace("]}", "], exact: {usage: large}}"),
            "usage: must be one of base_quant, base, plain",
        ),
        (TABLE.replace("]}", "], features: f}"), "features: has 1 entries, and `pooling` has 2"),
        (TABLE.replace("]}", "], batch_sizes: 7}"), "batch_sizes: has 1 entries"),
        (
            TABLE.replace("]}", "], cache: {expected_lookups: 3, miss_rate: null}}"),
            "cache: needs both `expected_lookups` and `miss_rate`, or none",
        ),
    ],
)
def test_values_that_no_plan_can_be_made_with(text, problem) -> None:
    rest = "" if text.startswith("tables") else TABLE + "\n"
    assert problem in broken(f"model: m\nbatch_size: 8\n{rest}{text}\n")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("float32", "fp32"),
        ("float", "fp32"),
        ("float16", "fp16"),
        ("half", "fp16"),
        ("bfloat16", "bf16"),
        ("torch.bfloat16", "bf16"),
        ("float64", "fp64"),
        ("int8", "int8"),
    ],
)
def test_data_types_have_the_names_of_pytorch_too(name, known):
    table = {**SMALLEST["tables"][0], "dtype": name}
    spec = parse(json.dumps({**SMALLEST, "tables": [table]}), "model.json")
    assert spec.tables[0].dtype == known


def test_an_unknown_data_type_is_refused_with_the_known_ones():
    table = {**SMALLEST["tables"][0], "dtype": "float31"}
    error = broken(json.dumps({**SMALLEST, "tables": [table]}), "model.json")
    assert "tables[0].dtype: must be one of fp64, fp32, fp16" in error
    table = {**SMALLEST["tables"][0], "output_dtype": "double"}  # no type of outputs
    assert "output_dtype: must be one of" in broken(
        json.dumps({**SMALLEST, "tables": [table]}), "model.json"
    )


@pytest.mark.parametrize("precision", ["fp7", "int8"])
def test_a_precision_that_is_not_one_of_floating_point_numbers_is_refused(precision) -> None:
    spec = ModelSpec(name="m", tables=(TableSpec(name="t", rows=10, dim=4),))
    with pytest.raises(ValueError, match=f"`precision` must be one of fp64, .* not '{precision}'"):
        with_precision(spec, precision)
