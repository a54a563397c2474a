"""A spec's numbers become the request's by formulas that are written here a second time."""

import importlib
import random
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from types import SimpleNamespace

import pytest

from fastplan.spec.hardware import find_hardware
from fastplan.spec.lower import lower, torchrec_version
from fastplan.spec.model import (
    CacheSpec,
    MenuEntry,
    ModelSpec,
    ModuleSpec,
    SearchSpec,
    TableSpec,
    TopologySpec,
)
from fastplan.spec.stock import VERSIONS

TWO_HOSTS = TopologySpec(world_size=16, local_world_size=8)


def lowered(table, module=None, *, batch_size=512, topology=TWO_HOSTS):
    modules = {} if module is None else {table.module: module}
    spec = ModelSpec(
        name="model", tables=(table,), batch_size=batch_size, modules=modules, topology=topology
    )
    return lower(spec)


def table_of(**fields):
    return TableSpec(**{"name": "t", "rows": 1_000, "dim": 64, **fields})


def only_table(table, module=None, **more):
    (found,) = lowered(table, module, **more).request.tables
    return found


def order_digest(version="1.9.2", module=None, deterministic=False, menu=None, **fields):
    menus = {}
    if menu is not None:
        menus["own"] = tuple(
            MenuEntry(kind, kernel, 1.0, (1.0, 1.0, 1.0, 0.0), None) for kind, kernel in menu
        )
        fields["menu"] = "own"
    spec = ModelSpec(
        name="model",
        tables=(table_of(**fields),),
        modules={table_of().module: module or ModuleSpec()},
        topology=TWO_HOSTS,
        torchrec=version,
        search=SearchSpec(deterministic=deterministic),
        menus=menus,
    )
    return lower(spec).context.get("option_order")


USUAL, OTHER = ("table_wise", "row_wise"), ("row_wise", "table_wise")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_an_unusual_order_of_a_modules_options_is_in_the_key(version, deterministic):
    def digest(types, **fields):
        module = ModuleSpec(sharding_types=types, compute_kernels=dict.fromkeys(types, ("fused",)))
        return order_digest(version, module, deterministic, **fields)

    assert digest(USUAL) is None
    assert digest(OTHER) == digest(OTHER, sharding_types=USUAL)  # the sharder's counts
    assert digest(OTHER) is not None
    assert digest(OTHER, sharding_types=("row_wise",)) is None
    assert digest(OTHER) != digest(OTHER, name="u")


@pytest.mark.parametrize(
    ("version", "deterministic"), [("1.8.0", False), ("1.8.0", True), ("1.9.2", False)]
)
def test_the_order_of_a_menu_is_in_the_key_where_it_is_no_sets(version, deterministic):
    listed = [("row_wise", "fused"), ("table_wise", "fused")]
    found = order_digest(version, None, deterministic, menu=listed)
    assert (found is None) == (version == "1.8.0" and not deterministic)
    assert order_digest(version, None, deterministic, menu=listed[::-1]) is None


@pytest.mark.parametrize("seed", range(20))
def test_inputs_are_values_looked_up_and_outputs_are_at_most_one_vector_each(seed):
    rng = random.Random(seed)
    features = rng.randint(1, 4)
    lengths = tuple(rng.choice((0.25, 0.5, 1.0, 2.0, 40.0)) for _ in range(features))
    poolings = tuple(rng.choice((1.0, 3.0)) for _ in range(features))
    sizes = tuple(rng.choice((64, 100, 512)) for _ in range(features))
    found = only_table(table_of(pooling=lengths, poolings=poolings, batch_sizes=sizes))
    inputs = outputs = 0.0
    for length, pooling, size in zip(lengths, poolings, sizes, strict=True):
        inputs += length * pooling * size
        outputs += (length if length < 1 else 1.0) * pooling * size
    assert (found.perf_inputs, found.perf_outputs) == (inputs, outputs)
    assert (found.storage_inputs, found.storage_outputs) == (inputs, outputs)


def test_a_feature_is_pooled_once_in_the_models_batch_unless_it_says_otherwise():
    found = only_table(table_of(pooling=(30.0,)), batch_size=7)
    assert (found.perf_inputs, found.perf_outputs) == (210.0, 7.0)
    found = only_table(table_of(pooling=(0.5, 2.0)), batch_size=10)
    assert (found.perf_inputs, found.perf_outputs) == (25.0, 15.0)


def test_sizes_on_the_wire_are_the_elements_unless_the_module_gives_all_four():
    def sizes(found):
        return found.fwd_a2a, found.bwd_a2a, found.fwd_sr, found.bwd_sr

    assert sizes(only_table(table_of(dtype="fp16"))) == (2.0, 2.0, 2.0, 2.0)
    own = ModuleSpec(wire=(1.0, 2.0, 3.0, 4.0))
    assert sizes(only_table(table_of(dtype="fp16"), own)) == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("dtype", "output", "size"),
    [("fp32", None, 4.0), ("fp16", None, 2.0), ("fp32", "fp16", 2.0), ("fp16", "int4", 0.5)],
)
def test_outputs_have_the_size_of_their_own_type(dtype, output, size):
    found = only_table(table_of(dtype=dtype, output_dtype=output))
    assert found.output_element_size == size
    assert found.bytes == 1_000 * 64 * found.element_size


def test_a_tables_own_cache_comes_before_its_modules_and_that_before_torchrecs():
    module = ModuleSpec(cache_load_factor=0.5)
    own = table_of(cache=CacheSpec(load_factor=0.75))
    assert only_table(own, module).cache_ratio == 0.75
    assert only_table(table_of(), module).cache_ratio == 0.5
    assert only_table(own).cache_ratio == 0.75
    assert only_table(table_of()).cache_ratio == 0.2
    # Key-value tables go by the module alone.
    assert only_table(own, module).kv_load_factor == 0.5
    assert only_table(own).kv_load_factor == 0.2


@pytest.mark.parametrize(
    ("pod", "group"), [(None, 8), (1, 8), (2, 16)], ids=["none", "one host", "two hosts"]
)
def test_a_pod_is_a_number_of_hosts_that_share_fast_links(pod, group):
    topology = TopologySpec(world_size=16, local_world_size=8, pod_size=pod)
    job = lowered(table_of(), topology=topology)
    assert job.cluster.group_size == group
    assert job.request.cost.layout_group_size == group
    assert job.cluster.local_world_size == 8


def test_across_hosts_the_slow_links_count_and_within_one_the_fast():
    hardware = find_hardware("torchrec")
    for ranks, speed in ((8, hardware.intra_host_bw), (16, hardware.inter_host_bw)):
        topology = TopologySpec(world_size=ranks, local_world_size=8)
        cost = lowered(table_of(), topology=topology).request.cost
        assert cost.bw_world_all_to_all == speed
        assert cost.bw_group_reduce_scatter == hardware.intra_host_bw
        assert cost.bw_world_all_reduce == 8 * hardware.inter_host_bw


@pytest.mark.parametrize(
    "folders",
    [
        [["torchrec-1.9.2.dist-info"]],
        [["torchrec-1.9.2+cu126.dist-info"]],
        [[], ["torchrec-1.9.2.dist-info", "torchrec_nightly-1.8.0.dist-info"]],
        [["torchrec.egg-info"], ["torchrec-1.8.0.dist-info"]],
        [["torchrec-1.9.2.dist-info"], ["torchrec-1.8.0.dist-info"]],
        [["numpy-2.0.0.dist-info"]],
    ],
    ids=str,
)
def test_the_installed_torchrec_is_the_one_that_importlib_finds(tmp_path, monkeypatch, folders):
    for place, names in enumerate(folders):
        for name in names:
            folder = tmp_path / str(place) / name
            folder.mkdir(parents=True)
            number = name.partition("-")[2].removesuffix(".dist-info")
            version = "1.9.2" if number == "info" else number
            text = f"Metadata-Version: 2.1\nName: torchrec\nVersion: {version}\n"
            (folder / ("METADATA" if "dist" in name else "PKG-INFO")).write_text(text)
    places = [str(tmp_path / "none"), *(str(tmp_path / str(n)) for n in range(len(folders)))]
    import_module("quopri")  # Python 3.13 imports it when it reads metadata
    monkeypatch.setattr("sys.path", places)
    importlib.invalidate_caches()
    try:
        expected = version_of("torchrec").partition("+")[0]
    except PackageNotFoundError:
        expected = "1.8.0"
    assert torchrec_version(SimpleNamespace(torchrec=None)) == expected
