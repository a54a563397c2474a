"""Small jobs under drawn plans, and what their ranks hold, to the bit."""

from __future__ import annotations

import copy
import random
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
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingEnv,
    ShardingPlan,
    ShardMetadata,
)
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from fastplan.torchrec.table_state import finish_writes, read_tables
from tests.torchrec.small_job import SHARDERS

ROWS = (37, 60, 81, 100)
DIM = 16
WORLD, HOST = 4, 2
OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rowwise_adagrad": RowWiseAdagrad,
    "adam": torch.optim.Adam,
}
POOLED = (
    *("table_wise", "column_wise", "row_wise", "data_parallel"),
    *("table_row_wise", "table_column_wise", "grid_shard"),
)
SEQUENCE = ("table_wise", "column_wise", "row_wise", "data_parallel")


class Model(torch.nn.Module):
    """Tables under one or two paths, and a dense weight that multiplies what they give."""

    def __init__(self, **tables: Any) -> None:
        super().__init__()
        self.sparse = torch.nn.ModuleDict(tables)
        self.scale = torch.nn.Parameter(torch.full((1, 1), 0.5))

    def forward(self, features: KeyedJaggedTensor, with_sequences: bool) -> torch.Tensor:
        pooled = self.sparse["bags"](features).values()
        if not with_sequences:
            return (pooled * self.scale).sin().sum()
        found = self.sparse["sequences"](features)
        flat = [found[f"f{i}"].values().sum() for i in range(2)]
        # Gradients are bounded, so that weights stay finite in any number of steps.
        return (pooled * self.scale).sin().sum() + (torch.stack(flat) * self.scale).sin().sum()


def model(optimizer: str) -> Model:
    torch.manual_seed(0)
    cpu = torch.device("cpu")
    bags = EmbeddingBagCollection(
        device=cpu,
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}",
                embedding_dim=DIM,
                num_embeddings=rows,
                feature_names=[f"f{i}"],
                pooling=PoolingType.MEAN if i == 1 else PoolingType.SUM,
            )
            for i, rows in enumerate(ROWS)
        ],
    )
    sequences = EmbeddingCollection(
        device=cpu,
        tables=[
            EmbeddingConfig(
                name=f"s{i}", embedding_dim=DIM, num_embeddings=rows, feature_names=[f"f{i}"]
            )
            for i, rows in enumerate(ROWS[:2])
        ],
    )
    if optimizer == "adam":  # fused kernels of CPU ranks have no Adam, dense ones no sequences
        return Model(bags=bags)
    made = Model(bags=bags, sequences=sequences)
    apply_optimizer_in_backward(OPTIMIZERS[optimizer], made.sparse.parameters(), {"lr": 0.1})
    return made


class Job:
    """A sharded model, and the optimizer of what has no fused kernel."""

    def __init__(self, optimizer: str, plan: ShardingPlan) -> None:
        self.dmp = DistributedModelParallel(
            model(optimizer),
            env=ShardingEnv.from_process_group(dist.GroupMember.WORLD),
            device=torch.device("cpu"),
            plan=copy.deepcopy(plan),
            sharders=SHARDERS,
        )
        dense = dict(in_backward_optimizer_filter(self.dmp.named_parameters()))
        kind: Any = OPTIMIZERS[optimizer]
        # A table keeps its settings in a move; fused kernels have this `eps` if none is given.
        more = {"eps": 1e-8} if "adagrad" in optimizer else {}
        self.optimizer = KeyedOptimizerWrapper(dense, lambda params: kind(params, lr=0.1, **more))

    def name(self, parameter: Any) -> str:
        return next(key for key, each in self.optimizer.params.items() if each is parameter)

    def parameter(self, name: str) -> Any:
        return self.optimizer.params[name]

    def train(self, steps: range) -> list[float]:
        losses = []
        sequences: Any = self.dmp.plan.plan.get("sparse.sequences", {})
        # FBGEMM's dense kernel, which data-parallel tables have, can't look up sequences on a CPU.
        with_sequences = sequences and all(
            each.compute_kernel == "fused" for each in sequences.values()
        )
        for step in steps:
            self.optimizer.zero_grad()
            loss = self.dmp(batch(step), bool(with_sequences))
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


def batch(step: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    lengths = torch.randint(0, 4, (5 * len(ROWS),), generator=generator)
    values = [
        torch.randint(0, rows, (int(lengths[5 * i : 5 * i + 5].sum()),), generator=generator)
        for i, rows in enumerate(ROWS)
    ]
    keys = [f"f{i}" for i in range(len(ROWS))]
    return KeyedJaggedTensor(keys=keys, values=torch.cat(values), lengths=lengths)


def drawn_plan(drawn: random.Random, optimizer: str) -> ShardingPlan:
    """A plan with any type for each table; a collection of sequences has one width of columns."""
    fused = "dense" if optimizer == "adam" else "fused"
    bags = {
        f"t{i}": sharding(drawn, drawn.choice(POOLED), rows, fused) for i, rows in enumerate(ROWS)
    }
    if optimizer == "adam":
        return ShardingPlan({"sparse.bags": EmbeddingModuleShardingPlan(bags)})
    width = drawn.choice([4, 8])
    sequences = {
        f"s{i}": sharding(drawn, drawn.choice(SEQUENCE), rows, fused, width)
        for i, rows in enumerate(ROWS[:2])
    }
    return ShardingPlan(
        {
            "sparse.bags": EmbeddingModuleShardingPlan(bags),
            "sparse.sequences": EmbeddingModuleShardingPlan(sequences),
        }
    )


def sharding(
    drawn: random.Random, kind: str, rows: int, kernel: str, width: int | None = None
) -> ParameterSharding:
    if kind == "data_parallel":
        return ParameterSharding(kind, "dense", list(range(WORLD)), None)
    width = DIM if kind in ("table_wise", "row_wise", "table_row_wise") else width
    width = width or drawn.choice([4, 8])
    columns = [(start, width) for start in range(0, DIM, width)]
    shards: list[tuple[int, int, int, int, int]] = []
    if kind == "row_wise":
        shards = [(*at, 0, DIM, rank) for rank, at in enumerate(_rows(rows, WORLD))]
    elif kind in ("table_row_wise", "grid_shard"):
        for column, wide in columns:
            host = drawn.randrange(WORLD // HOST)
            shards += [
                (*at, column, wide, host * HOST + rank) for rank, at in enumerate(_rows(rows, HOST))
            ]
    elif kind == "table_column_wise":
        host = drawn.randrange(WORLD // HOST)
        ranks = [host * HOST + drawn.randrange(HOST) for _ in columns]
        shards = [(0, rows, *at, rank) for at, rank in zip(columns, ranks, strict=True)]
    else:
        shards = [(0, rows, *at, drawn.randrange(WORLD)) for at in columns]
    spec = EnumerableShardingSpec(
        [
            ShardMetadata([row, column], [height, wide], f"rank:{rank}/cpu")
            for row, height, column, wide, rank in shards
        ]
    )
    return ParameterSharding(kind, kernel, [shard[-1] for shard in shards], spec)


def _rows(rows: int, count: int) -> list[tuple[int, int]]:
    block = -(-rows // count)
    starts = [min(i * block, rows) for i in range(count)]
    return [(start, min(block, rows - start)) for start in starts]


def held(job: Job) -> dict[str, list[Any]]:
    """What this rank holds: by table and state, the place and a copy of each shard."""
    found: dict[str, list[Any]] = {}
    for key, table in read_tables(job.dmp, job.optimizer).items():
        for state in (table.weight, *table.states.values()):
            found[f"{key} {state.name} {state.kind}"] = [
                (shard.offsets, shard.sizes, shard.tensor.detach().clone().flatten())
                for shard in state.shards
            ]
    return found


def whole(parts: list[dict[str, list[Any]]]) -> dict[str, torch.Tensor]:
    """Whole tables and states of all ranks; row-wise states have a column for each of the table."""
    found: dict[str, torch.Tensor] = {}
    for key in {key for part in parts for key in part}:
        shards = [shard for part in parts for shard in part.get(key, [])]
        if not shards:
            continue
        if key.endswith("scalar"):
            continue
        rows, columns = (max(place[at] + size[at] for place, size, _ in shards) for at in (0, 1))
        table = torch.full((rows, columns), torch.nan)
        for (row, column), (height, width), values in shards:
            matrix = values.view(height, -1).expand(height, width)
            table[row : row + height, column : column + width] = matrix
        assert not table.isnan().any(), key
        found[key] = table
    return found


def everything(job: Job) -> dict[str, torch.Tensor]:
    """All tables and states of the job, on each rank."""
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, held(job))
    return whole(parts)


def copied(job: Job, plan: ShardingPlan, optimizer: str) -> Job:
    """A job that is built under the plan, with the tables and states of one that has come to it."""
    made = Job(optimizer, plan)
    made.train(range(1))  # makes the states of the dense optimizer
    for parameter in made.optimizer.param_groups[0]["params"]:
        if old := job.optimizer.state.get(job.parameter(made.name(parameter))):
            made.optimizer.state.setdefault(parameter, {})
            for name, value in old.items():
                made.optimizer.state[parameter].setdefault(name, copy.deepcopy(value))
    target, source = (read_tables(each.dmp, each.optimizer) for each in (made, job))
    for key, table in target.items():
        other = source[key]
        for ours, theirs in (
            (table.weight, other.weight),
            *((state, other.states[name]) for name, state in table.states.items()),
        ):
            assert [shard[:2] for shard in ours.shards] == [shard[:2] for shard in theirs.shards]
            for own, of_other in zip(ours.shards, theirs.shards, strict=True):
                own.tensor.copy_(of_other.tensor)
    finish_writes(made.dmp)
    with torch.no_grad():
        made.dmp.module.scale.copy_(job.dmp.module.scale)
    for name, value in job.optimizer.state[job.dmp.module.scale].items():
        if isinstance(value, torch.Tensor):
            made.optimizer.state[made.dmp.module.scale][name].copy_(value)
    return made
