"""The rules that specs are planned by are those of the installed TorchRec."""

import pytest
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner import constants
from torchrec.distributed.planner.enumerators import (
    GUARDED_COMPUTE_KERNELS,
    GUARDED_SHARDING_TYPES_FOR_FP_MODULES,
)
from torchrec.distributed.planner.types import ShardingOption
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import DATA_TYPE_NUM_BITS

from fastplan.spec import stock, stock_rules
from fastplan.torchrec.export_tables import KINDS
from fastplan.torchrec.support import support

from .draw import Draw
from .models import MODULES, Table, make_sharder


def test_constants() -> None:
    assert stock.POOLING_FACTOR == constants.POOLING_FACTOR
    assert stock.NUM_POOLINGS == constants.NUM_POOLINGS
    assert stock.INPUT_ELEMENT_SIZE == constants.BIGINT_DTYPE
    assert stock.CACHE_LOAD_FACTOR == constants.UVM_CACHING_RATIO == constants.KV_CACHING_RATIO
    assert stock.WEIGHTED_KERNEL_MULTIPLIER == constants.WEIGHTED_KERNEL_MULTIPLIER
    assert {kernel.value for kernel in GUARDED_COMPUTE_KERNELS} == stock.GUARDED_KERNELS
    assert set(GUARDED_SHARDING_TYPES_FOR_FP_MODULES) == stock.GUARDED_TYPES_OF_PROCESSED
    kernels = tuple(kernel.value for kernel in EmbeddingComputeKernel)
    assert stock_rules.kernels_of(support.torchrec_name()) == kernels
    assert support.torchrec_name() in stock.VERSIONS
    assert {
        kind.value.lower(): bits for kind, bits in DATA_TYPE_NUM_BITS.items()
    } == stock.OUTPUT_BITS


@pytest.mark.parametrize("kind", MODULES)
def test_kinds_of_modules(kind: str) -> None:
    sharder = make_sharder(kind, None, None)
    known = stock.KINDS[KINDS[sharder_name(sharder.module_type)]]
    name = "weight" if kind == "plain_bag" else "t"
    module = MODULES[kind](Draw(kind), [Table(name=name, rows=960, dim=64, features=("f",))])
    if "tower" not in kind:
        assert known.pooled == bool(ShardingOption.module_pooled(module, ""))
    for device in stock.DEVICES:
        types = sharder.sharding_types(device)
        assert known.types[device] == tuple(types)
        for sharding_type in types:
            kernels = sharder.compute_kernels(sharding_type, device)
            assert stock_rules.stock_kernels(known, sharding_type, device) == tuple(kernels)


def test_default_sharders_are_known() -> None:
    unknown = {sharder_name(each.module_type) for each in get_default_sharders()} - {*KINDS}
    # Quantised managed collisions and 1.9's PEC modules are exported with their own lists.
    assert all("QuantManagedCollision" in name or "PEC" in name for name in unknown)


@pytest.mark.parametrize("device", stock.DEVICES)
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("ratio", [None, 0.0, 0.3])
def test_kernel_bandwidths(device: str, prefetch: bool, ratio: float | None) -> None:
    numbers = {"hbm": 1.1e9, "ddr": 3.3e7, "ssd": 1.7e5, "hbm_to_ddr": 2.9e7}
    for kernel in stock_rules.kernels_of(support.torchrec_name()):
        expected = constants.kernel_bw_lookup(
            device,
            kernel,
            numbers["hbm"],
            numbers["ddr"],
            numbers["hbm_to_ddr"],
            ratio,
            prefetch,
            numbers["ssd"],
        )
        found = stock_rules.kernel_bandwidth(
            device, kernel, **numbers, cache_ratio=ratio, prefetch=prefetch
        )
        assert found == expected
