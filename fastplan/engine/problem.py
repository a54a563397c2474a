"""The problem: a request's search space as columns, shards as runs (count x value)."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from fastplan.model.request import Cluster

if TYPE_CHECKING:
    from fastplan.engine import _native
    from fastplan.engine.step import StepModel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Options of every table in order, and their shards. Offsets end in `_begin`."""

    table_option_begin: Ints
    table_module: NDArray[np.int32]
    table_group: NDArray[np.int32]  # tables of one group share a host; -1 is none
    option_type: NDArray[np.uint8]
    option_kernel: NDArray[np.uint8]
    option_key: NDArray[np.uint64]
    option_run_begin: Ints
    run_count: Ints
    run_rows: Ints
    run_cols: Ints
    run_fwd_compute: Floats
    run_fwd_comms: Floats
    run_bwd_compute: Floats
    run_bwd_comms: Floats
    run_input_dist_comms: Floats
    run_prefetch_compute: Floats
    run_hbm: Ints
    run_ddr: Ints
    run_ssd: Ints
    step: StepModel | None = None  # what a step depends on; None with TorchRec's costs

    @property
    def tables(self) -> int:
        return len(self.table_option_begin) - 1

    @property
    def options(self) -> int:
        return len(self.option_type)


SPACE_COLUMNS = tuple(f.name for f in fields(SearchSpace) if f.name != "step")


@dataclass(frozen=True)
class Problem:
    """A search space and its cluster. Both are immutable."""

    space: SearchSpace
    cluster: Cluster

    @cached_property
    def handle(self) -> _native.Problem:
        """The native problem, which every native function takes.

        It is built and checked on first access. It is an immutable copy of the columns, so
        threads can share it.

        Raises:
            OutOfRange: exact arithmetic would need larger numbers than the core has.
        """
        # Plan files and reports read problems without the native core.
        from fastplan.engine import _native

        return _native.Problem(self.columns())

    def __reduce__(self) -> tuple[Any, ...]:
        # A handle belongs to one process: a copy builds its own.
        return Problem, (self.space, self.cluster)

    def columns(self) -> _native.ProblemColumns:
        """Returns the named columns that the handle is built from."""
        columns: dict[str, Any] = {name: getattr(self.space, name) for name in SPACE_COLUMNS}
        columns["rank_hbm"] = np.array(self.cluster.rank_hbm, np.int64)
        columns["rank_ddr"] = np.array(self.cluster.rank_ddr, np.int64)
        columns["rank_ssd"] = np.array(self.cluster.rank_ssd, np.int64)
        columns["local_world_size"] = self.cluster.local_world_size
        columns["group_size"] = self.cluster.group_size
        # Scores are taken with Python's sum(), which compensates rounding from 3.12 on.
        columns["compensated_sum"] = sys.version_info >= (3, 12)
        return cast("_native.ProblemColumns", columns)
