"""One small fixed model for the tests that vary something else."""

from typing import Any

from torch import nn
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from .compare import assert_same, outcome
from .instances import Built
from .models import META, Table, bag_collection, make_sharder
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner, TorchRecPlanner

MIB = 1024**2
SHAPES = [(40_000, 64), (1_000, 128), (250_000, 16), (9_999, 256), (70, 32)]


def small_tables(count: int = 4) -> list[Table]:
    return [
        Table(
            name=f"table_{i}",
            rows=SHAPES[i % len(SHAPES)][0],
            dim=SHAPES[i % len(SHAPES)][1],
            features=(f"feature_{i}",),
        )
        for i in range(count)
    ]


def small_model(count: int = 4) -> EmbeddingBagCollection:
    return bag_collection(small_tables(count))


def small_constraints(count: int = 4, **fields: Any) -> dict[str, ParameterConstraints]:
    return {
        f"table_{i}": ParameterConstraints(pooling_factors=[3.5 * (i + 1)], **fields)
        for i in range(count)
    }


def small_topology(ranks: int = 4, hbm: int = 256 * MIB, **options: Any) -> Topology:
    options = {"local_world_size": 2 if ranks % 2 == 0 else ranks, **options}
    return Topology(world_size=ranks, compute_device="cuda", hbm_cap=hbm, **options)


def small(module: nn.Module | None = None, count: int = 4, **planner_kwargs: Any) -> Built:
    """Fresh arguments of a run with the given planner arguments and defaults elsewhere."""
    kwargs = {"topology": small_topology(), "stats": [], **planner_kwargs}
    return Built(
        module=small_model(count) if module is None else module,
        sharders=[make_sharder("bag", None, None)],
        planner_kwargs=kwargs,
        stock=True,
    )


def cramped() -> dict[str, Any]:
    """Planner arguments under which a search runs and finds no plan."""
    return {
        "topology": small_topology(hbm=MIB, ddr_cap=MIB),
        "storage_reservation": FixedPercentageStorageReservation(0.0),
    }


def dense_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4, device=META))


def assert_agree(build: Any, **build_arguments: Any) -> tuple[dict[str, Any], Any]:
    """Both planners do the same with `build()`; returns fastplan's record and planner."""
    expected, _ = outcome(TorchRecPlanner, build(**build_arguments))
    actual, planner = outcome(FastPlanner, build(**build_arguments))
    assert_same(expected, actual)
    return actual, planner


def assert_engine(planner: Any, *engines: str) -> None:
    """The run took one of the engines, and gives a reason unless it was native."""
    if SELF_CHECK:
        return
    if not ESTIMATES_NATIVELY and "native" in engines:
        engines = (*engines, "mixed")  # TorchRec's own code estimates
    assert planner.last_run.engine in engines
    assert (planner.last_run.reason is None) == (planner.last_run.engine == "native")
