"""The shards of options as columns of runs: equal neighbours with their number.

The core reads them if all numbers are plain ones, which is nearly always.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import Perf, Shard, ShardingOption, Storage

from fastplan.engine.watch import read_parts
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences import storage_tiers

_INTS = ("rows", "cols", "hbm", "ddr", "ssd")
PERF_PARTS = (
    "fwd_compute",
    "fwd_comms",
    "bwd_compute",
    "bwd_comms",
    "input_dist_comms",
    "prefetch_compute",
)
# The columns of a search space that its shards decide.
RUN_COLUMNS = ("option_run_begin", "run_count", *(f"run_{name}" for name in (*_INTS, *PERF_PARTS)))
# Where the core finds them in a shard, if all are plain numbers.
_STORAGE = ("storage", Storage, storage_tiers.TIERS)
_PERF = ("perf", Perf, PERF_PARTS)


def read_runs(options: Sequence[ShardingOption]) -> dict[str, Any]:
    """Returns the columns of all shards, equal neighbours as one run.

    Raises:
        NotNative: an option has no shards or no estimates, or they are no plain numbers.
    """
    read = read_parts(options, list="shards", type=Shard, sizes="size", ints=_STORAGE, floats=_PERF)
    if read is not None:
        begin, counts, ints, floats = read
        ints += [np.zeros(len(counts), np.int64)] * (len(_INTS) - len(ints))  # tiers it has not
        return dict(zip(RUN_COLUMNS, (begin, counts, *ints, *floats), strict=True))
    rows: list[tuple[Any, ...]] = []
    run_begin = [0]
    for option in options:
        rows.extend(_runs(option))
        run_begin.append(len(rows))
    by_column = list(zip(*rows, strict=True))
    count = 1 + len(_INTS)
    try:
        ints = [np.array(column, np.int64) for column in by_column[:count]]
    except OverflowError as error:
        raise NotNative("a size is beyond 64 bits") from error
    floats = [np.array(column, np.float64) for column in by_column[count:]]
    columns = (np.array(run_begin, np.int64), *ints, *floats)
    return dict(zip(RUN_COLUMNS, columns, strict=True))


def _runs(option: ShardingOption) -> list[tuple[Any, ...]]:
    """Merges equal neighbouring shards into one row with their number."""
    runs: list[tuple[Any, ...]] = []
    before: tuple[Any, ...] | None = None
    count = 0
    for shard in option.shards:
        if shard.storage is None or shard.perf is None:
            raise NotNative(f"table {option.fqn} has a shard without an estimate")
        row = shard_row(shard)
        if row == before:
            count += 1
            continue
        if before is not None:
            runs.append((count, *before))
        before, count = row, 1
    if before is None:
        raise NotNative(f"table {option.fqn} has an option without shards")
    runs.append((count, *before))
    return runs


def shard_row(shard: Any) -> tuple[Any, ...]:
    """Returns the columns of a shard. Raises NotNative if they can't represent its estimates."""
    storage, perf = shard.storage, shard.perf
    if type(storage) is not Storage or type(perf) is not Perf:
        raise NotNative("an estimate is not of TorchRec's own Storage or Perf type")
    hbm, ddr, ssd = storage_tiers.bytes_of(storage)
    if not (isinstance(hbm, int) and isinstance(ddr, int) and isinstance(ssd, int)):
        raise NotNative("a storage estimate is not a whole number of bytes")
    rows, cols = (*shard.size, 0)[:2]
    return (rows, cols, hbm, ddr, ssd, *(getattr(perf, name) for name in PERF_PARTS))


def row_or_none(shard: Any) -> tuple[Any, ...] | None:
    """Returns the columns of a shard; None if they can't represent its estimates."""
    try:
        return shard_row(shard)
    except NotNative:
        return None
