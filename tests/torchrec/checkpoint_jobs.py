"""Jobs with a table per pair of shardings: trained under the first, loaded under the second."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    PoolingType,
)
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.types import (
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingEnv,
    ShardMetadata,
)
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from fastplan.torchrec.table_state import STEP, Table, read_tables
from tests.torchrec.shardings import plan_of
from tests.torchrec.small_job import SHARDERS

ROWS, DIM = 50, 16  # rows that no number of ranks divides
RANKS_PER_HOST = 2
OPTIMIZERS: dict[str, type] = {
    "sgd": torch.optim.SGD,
    "rowwise_adagrad": RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
}
# Adam's fused kernel needs a GPU.
FUSED = ("sgd", "rowwise_adagrad", "adagrad")
_BAG_TYPES = ("tw", "cw", "rw", "twrw", "twcw", "grid")
_SEQUENCE_TYPES = ("tw", "cw", "rw")
_NAMES = {
    "dp": "data_parallel",
    "tw": "table_wise",
    "cw": "column_wise",
    "rw": "row_wise",
    "twrw": "table_row_wise",
    "twcw": "table_column_wise",
    "grid": "grid_shard",
}
Layout = tuple[str, str]  # short name of a sharding type, and kernel


def layouts(kind: str, optimizer: str) -> list[Layout]:
    """The shardings of a table that CPU ranks run."""
    types = _BAG_TYPES if kind == "bags" else _SEQUENCE_TYPES
    found = [("dp", "dense"), *((each, "dense") for each in types)]
    if optimizer in FUSED:
        found += [(each, "fused") for each in types]
        found += [("tw", "fused_uvm"), ("tw", "fused_uvm_caching")]
    return found


def pairs(kind: str, optimizer: str) -> dict[str, tuple[Layout, Layout]]:
    """A table for each pair of shardings, by its name."""
    both = itertools.product(layouts(kind, optimizer), repeat=2)
    return {"--".join(f"{t}_{k}" for t, k in pair): pair for pair in both}


def sharding(layout: Layout, number: int, world: int) -> ParameterSharding:
    """A sharding of table `number`. Ranks are on hosts of two."""
    name, kernel = layout
    if name == "dp":
        return ParameterSharding("data_parallel", "dense", list(range(world)), None)
    host = RANKS_PER_HOST * (number % (world // RANKS_PER_HOST))
    on_host = [host, host + 1]
    everywhere = list(range(world))
    cuts = {
        "tw": lambda: [(0, 0, ROWS, DIM, number % world)],
        "cw": lambda: list(_columns(everywhere)),
        "rw": lambda: list(_rows(everywhere, 0, DIM)),
        "twrw": lambda: list(_rows(on_host, 0, DIM)),
        "twcw": lambda: list(_columns(on_host)),
        "grid": lambda: list(_grid(world)),
    }[name]()
    shards = [ShardMetadata(list(c[:2]), list(c[2:4]), f"rank:{c[4]}/cpu") for c in cuts]
    spec = EnumerableShardingSpec(shards)
    return ParameterSharding(_NAMES[name], kernel, [cut[4] for cut in cuts], spec)


def _rows(ranks: list[int], column: int, columns: int) -> Iterator[tuple[int, ...]]:
    height = -(-ROWS // len(ranks))
    for i, rank in enumerate(ranks):
        yield i * height, column, min(height, ROWS - i * height), columns, rank


def _columns(ranks: list[int]) -> Iterator[tuple[int, ...]]:
    width = DIM // len(ranks)
    return ((0, i * width, ROWS, width, rank) for i, rank in enumerate(ranks))


def _grid(world: int) -> Iterator[tuple[int, ...]]:
    hosts = world // RANKS_PER_HOST
    width = DIM // hosts
    for host in range(hosts):
        yield from _rows([2 * host, 2 * host + 1], host * width, width)


class Model(torch.nn.Module):
    def __init__(self, tables: torch.nn.Module) -> None:
        super().__init__()
        self.tables = tables
        self.scale = torch.nn.Parameter(torch.ones(3, 2))

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        values = self.tables(features).values()  # of a KeyedTensor, or of a dict of JaggedTensors
        if not isinstance(values, torch.Tensor):
            values = torch.cat([each.values() for each in values])
        return values * self.scale.sum()


def model(kind: str, optimizer: str, names: list[str], seed: int = 0) -> Model:
    # Ranks that draw the same numbers would fill column shards of a table alike.
    torch.manual_seed(100 * seed + dist.get_rank())
    common = {"embedding_dim": DIM, "num_embeddings": ROWS}
    if kind == "bags":
        made: Any = EmbeddingBagCollection(
            device=torch.device("cpu"),
            tables=[
                EmbeddingBagConfig(
                    name=name, feature_names=[f"f_{name}"], pooling=PoolingType.SUM, **common
                )
                for name in names
            ],
        )
    else:
        made = EmbeddingCollection(
            device=torch.device("cpu"),
            tables=[
                EmbeddingConfig(name=name, feature_names=[f"f_{name}"], **common) for name in names
            ],
        )
    if optimizer in FUSED:
        apply_optimizer_in_backward(OPTIMIZERS[optimizer], made.parameters(), {"lr": 0.1})
    return Model(made)


class Job:
    """A sharded model, its dense optimizer, and the state dicts that TorchRec's users save."""

    def __init__(
        self,
        kind: str,
        optimizer: str,
        shardings: dict[str, ParameterSharding],
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.names = list(shardings)
        self.dmp = DistributedModelParallel(
            model(kind, optimizer, self.names, seed),
            env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
            device=torch.device("cpu"),
            plan=plan_of(shardings),
            sharders=SHARDERS,
        )
        # A table without a shard on this rank has an empty vector, which RowWiseAdagrad can't take.
        dense = {
            name: parameter
            for name, parameter in in_backward_optimizer_filter(self.dmp.named_parameters())
            if parameter.numel()
        }
        self.dense = KeyedOptimizerWrapper(
            dense, lambda p: OPTIMIZERS[optimizer](p, lr=0.1, **settings)
        )

    @property
    def combined(self) -> CombinedOptimizer:
        return CombinedOptimizer([self.dmp.fused_optimizer, self.dense])

    def train(self, steps: range) -> None:
        for step in steps:
            self.dense.zero_grad()
            out = self.dmp(self.batch(step))
            (out * out).sum().backward()
            self.dense.step()

    def fill(self) -> None:
        """Puts random numbers in the place of training: the same on all ranks that share a part.

        FBGEMM's dense kernel can't look up sequences on a CPU, so that such jobs can't train.
        """
        self.dense.init_state()
        for key, table in self.tables().items():
            for state in (table.weight, *table.states.values()):
                for shard in state.shards:
                    if state.kind == "scalar":
                        shard.tensor.fill_(2)
                        continue
                    name = f"{key} {state.name} {shard.offsets}"
                    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                    shard.tensor.copy_(torch.rand(shard.tensor.shape, generator=generator))

    def batch(self, step: int) -> KeyedJaggedTensor:
        generator = torch.Generator().manual_seed(step)
        count = 4 * len(self.names)
        return KeyedJaggedTensor(
            keys=[f"f_{name}" for name in self.names],
            values=torch.randint(0, ROWS, (2 * count,), generator=generator),
            lengths=torch.full((count,), 2),
        )

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.dmp.state_dict(), "optim": self.combined.state_dict()}

    def tables(self) -> dict[str, Table]:
        return read_tables(self.dmp, self.dense)

    def snapshot(self) -> dict[str, Any]:
        """Copies of everything that this rank holds."""
        found: dict[str, Any] = {"scale": self.dmp.module.scale.detach().clone()}
        for key, table in self.tables().items():
            for state in (table.weight, *table.states.values()):
                found[f"{key} {state.name}"] = [each.tensor.clone() for each in state.shards]
        return found


def spread(kind: str, shard: Any) -> torch.Tensor:
    """A number for each weight of a shard, as bits."""
    tensor = shard.tensor.detach()
    if kind == "rowwise":
        tensor = tensor.reshape(-1, 1).expand(*shard.sizes)
    return tensor.contiguous().view(torch.int32).clone()


def keep_truth(job: Job, file: Path) -> None:
    """Writes what this rank holds, for `Truth`."""
    found: dict[str, Any] = {}
    for key, table in job.tables().items():
        for state in (table.weight, *table.states.values()):
            for shard in state.shards:
                value = (
                    float(shard.tensor)
                    if state.kind == "scalar"
                    else (shard.offsets, shard.sizes, spread(state.kind, shard))
                )
                found.setdefault(key, {}).setdefault(state.name, []).append(value)
    torch.save(found, file)


class Truth:
    """What tables held when they were saved, put together from all ranks."""

    def __init__(self, files: list[Path]) -> None:
        self._tables: dict[str, dict[str, Any]] = {}
        for file in files:
            for key, states in torch.load(file, weights_only=True).items():
                for name, parts in states.items():
                    self._put(key, name, parts)

    def _put(self, key: str, name: str, parts: list[Any]) -> None:
        table = self._tables.setdefault(key, {})
        for part in parts:
            if name == STEP:
                table[name] = part
                continue
            whole = table.setdefault(name, torch.zeros(ROWS, DIM, dtype=torch.int32))
            (row, column), (rows, columns), values = part
            whole[row : row + rows, column : column + columns] = values

    def differs(self, table: Table, states: bool) -> str:
        """What of a loaded table is not as it was; empty if all of it is."""
        truth = self._tables[table.key]
        for state in table.states.values() if states else [table.weight]:
            for shard in state.shards:
                if state.name == STEP:
                    known = truth.get(STEP)
                    # Tables of a fused kernel share a counter; one that is not read is not kept.
                    is_kept = state.is_used or bool(known and not table.is_fused)
                    if is_kept and known != float(shard.tensor):
                        return f"{STEP} {float(shard.tensor)} for {known}"
                    continue
                (row, column), (rows, columns) = shard.offsets, shard.sizes
                whole = truth.get(state.name)
                if whole is None:
                    return f"{state.name} made up"
                part = whole[row : row + rows, column : column + columns]
                if not torch.equal(part, spread(state.kind, shard)):
                    return f"{state.name} differs"
        return ""


def quiet(work: Callable[[], object]) -> str:
    """The first line of the error of some work; empty without one."""
    try:
        work()
    except BaseException as error:  # DCP's errors are not exceptions
        return next((line for line in str(error).splitlines() if line), repr(error))
    return ""


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Asserts that two snapshots have the same bits."""
    assert found.keys() == expected.keys()
    for key, tensors in expected.items():
        for a, b in zip(found[key], tensors, strict=True):
            assert torch.equal(a, b), key
