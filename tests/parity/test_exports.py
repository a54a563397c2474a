"""Exports of stock models say nothing but the model: every number follows from TorchRec's rules.

An export gives the numbers that the rules don't lead to as they are. For a stock model there are
none, so a wrong rule is seen here, and the export does not make up for it.
"""

from typing import Any

import pytest
from torch import nn
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import DataType

from fastplan.spec.model import ModelSpec
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.export_tables import ExportError

from .draw import Draw
from .families import TRAINING_KINDS
from .instances import FAMILIES, Built, make_instance
from .models import MODULES, Table, bag_collection, make_sharder, sequence_collection
from .small import small, small_constraints
from .subject import SELF_CHECK, FastPlanner

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec knows no specs")

NO_NUMBERS = {"exact": {}, "menus": {}, "cost": {}, "kjt": None}


def given_numbers(spec: ModelSpec) -> dict[str, Any]:
    """What the spec gives as a number instead of leaving it to the rules."""
    tables = {table.name: table.exact for table in spec.tables if table.exact}
    return {"exact": tables, "menus": spec.menus, "cost": spec.cost, "kjt": spec.reservation.kjt}


def exported(built: Built) -> ModelSpec:
    return export_spec(FastPlanner(**built.planner_kwargs), built.module, built.sharders)


def alike(count: int = 4) -> list[Table]:
    """Tables of one dimension, which every kind of module takes."""
    return [
        Table(name=f"table_{i}", rows=1_000 * 7**i, dim=64, features=(f"feature_{i}",))
        for i in range(count)
    ]


@pytest.mark.parametrize("kind", TRAINING_KINDS)
def test_a_stock_module_of_any_kind_is_exported_without_numbers(kind: str) -> None:
    built = small(MODULES[kind](Draw(kind), alike()))
    built.sharders[:] = [make_sharder(kind, None, None)]
    spec = exported(built)
    assert spec.tables
    assert given_numbers(spec) == NO_NUMBERS


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_several_modules_of_several_tables_need_no_numbers(ranks: int, device: str) -> None:
    root = nn.Module()
    root.bags = bag_collection(alike())
    root.weighted = bag_collection(
        [Table(name=f"w{i}", rows=900, dim=16 << i, features=(f"w{i}", f"v{i}")) for i in range(3)],
        weighted=True,
    )
    root.sequences = sequence_collection(
        [Table(name="s", rows=77, dim=32, features=("s",), data_type=DataType.FP16)]
    )
    local = 2 if ranks % 2 == 0 else ranks
    topology = Topology(world_size=ranks, compute_device=device, local_world_size=local)
    built = small(root, topology=topology, batch_size=300)
    built.sharders.append(make_sharder("sequence", None, None))
    spec = exported(built)
    assert {table.module for table in spec.tables} == {"bags", "weighted", "sequences"}
    assert given_numbers(spec) == NO_NUMBERS


@pytest.mark.parametrize(
    "constraints",
    [
        small_constraints(),
        small_constraints(sharding_types=["row_wise", "table_wise", "grid_shard"]),
        small_constraints(compute_kernels=["fused", "fused_uvm_caching"]),
        small_constraints(sharding_types=["data_parallel", "row_wise"], min_partition=16),
        small_constraints(
            sharding_types=["column_wise"],
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.3),
        ),
        {
            "table_0": ParameterConstraints(
                pooling_factors=[0.5], num_poolings=[3.0], batch_sizes=[128]
            ),
            "table_2": ParameterConstraints(pooling_factors=[40.0], output_dtype=DataType.FP16),
        },
    ],
    ids=["pooling", "types", "kernels", "partition", "cache", "features"],
)
def test_constraints_are_words_and_not_numbers(constraints: dict[str, Any]) -> None:
    spec = exported(small(constraints=constraints))
    assert given_numbers(spec) == NO_NUMBERS
    named = {table.name: table for table in spec.tables}
    for name, rule in constraints.items():
        assert named[name].sharding_types == (tuple(rule.sharding_types or ()) or None)
        assert named[name].compute_kernels == (tuple(rule.compute_kernels or ()) or None)


@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_models_need_no_numbers_unless_an_estimator_is_given(family: str) -> None:
    for turn in range(4):
        built = make_instance(list(FAMILIES).index(family) + turn * len(FAMILIES)).build()
        try:
            found = given_numbers(exported(built))
        except (ExportError, PlannerError):
            continue  # tests/parity/test_specs.py says which
        assert found["exact"] == {}
        if built.stock and built.planner_kwargs.get("enumerator") is None:
            # Tables of another device group have inputs too, and are not in the spec.
            kjt = found["kjt"] if family == "groups" else None
            assert found == NO_NUMBERS | {"kjt": kjt}
