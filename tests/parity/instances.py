"""Seeded planning instances over everything TorchRec's planner can be given.

`make_instance(seed)` describes one instance. Its family, chosen by the seed in turn,
says which part of the input space it explores; everything else is drawn around the
defaults. `Instance.build()` makes all objects anew, identically each time, so that two
planners never share one.
"""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import (
    BasicCommsBandwidths,
    ParameterConstraints,
    Topology,
)

from . import components as parts
from .draw import Draw
from .families import FAMILIES, MEMORY, QUANT_KINDS
from .models import MODULES, Table, make_sharder, nest, quantised_comms, set_optimizers


@dataclass(frozen=True)
class Built:
    """Fresh arguments of one planning run.

    `stock` tells whether every component is TorchRec's own: then nothing has to be asked
    of Python while planning.
    """

    module: nn.Module
    sharders: list[Any]
    planner_kwargs: dict[str, Any]
    stock: bool


@dataclass(frozen=True)
class Instance:
    """One planning problem: a seed and the family it belongs to.

    A small one takes TorchRec milliseconds.
    """

    seed: int
    family: str
    is_small: bool = False

    def __str__(self) -> str:
        return f"{self.family}-{self.seed}"

    def build(self) -> Built:
        return _Builder(self).build()


def make_instance(seed: int) -> Instance:
    """The instance of a seed; consecutive seeds visit all families in turn."""
    return Instance(seed, list(FAMILIES)[seed % len(FAMILIES)])


class _Builder:
    """Draws one instance's objects in a fixed order."""

    def __init__(self, instance: Instance) -> None:
        self.draw = Draw(f"fastplan parity {instance.seed}")
        self.family = FAMILIES[instance.family]
        if instance.is_small:
            self.family = replace(
                self.family,
                tables=[1, 2, 3],
                modules=[min(count, 2) for count in self.family.modules],
                ranks=[min(ranks, 4) for ranks in self.family.ranks],
                rows=(50, 3e4),
            )
        draw, family = self.draw, self.family
        self.ranks = draw.pick(family.ranks)
        self.hosts = min(draw.pick(family.hosts), self.ranks)
        self.device = draw.pick(family.device)
        self.batch_size = draw.pick([None, 1, 64, 500, 512, 2048])

    def build(self) -> Built:
        draw, family = self.draw, self.family
        kinds = [draw.pick(family.kinds) for _ in range(draw.pick(family.modules))]
        groups = [self.tables(kind, i) for i, kind in enumerate(kinds)]
        modules = [MODULES[kind](draw, group) for kind, group in zip(kinds, groups, strict=True)]
        module = modules[0]
        if len(modules) > 1 or draw.chance(0.2):
            module = nest(draw, modules)
        if draw.chance(family.optimizer):
            set_optimizers(draw, module)
        tables = [table for group in groups for table in group]
        capacity = self.capacity(tables)
        topology = self.topology(capacity)
        constraints = self.constraints(kinds, groups)
        sharders = self.sharders(kinds)
        style = draw.pick(family.perf)
        return Built(
            module=module,
            sharders=sharders,
            planner_kwargs=self.planner_kwargs(
                topology, constraints, capacity, style, inference=kinds[0] in QUANT_KINDS
            ),
            stock=style not in ("tuned", "wider")
            and type(topology.comms_bandwidths) is BasicCommsBandwidths,
        )

    def tables(self, kind: str, index: int) -> list[Table]:
        draw, family = self.draw, self.family
        count = 1 if kind == "plain_bag" else draw.pick(family.tables)
        identical = draw.chance(family.identical)
        dims = [4, 8, 16, 36, 64, 64, 128, 128, 160, 256, 512]
        if "sequence" in kind or "tower" in kind:
            # An embedding collection takes tables of one dimension only.
            dims = [draw.pick(dims)]
        tables: list[Table] = []
        for i in range(count):
            rows = int(draw.magnitude(*family.rows))
            buckets = None
            if "keyvalue" in family.kernels and draw.chance(0.5):
                buckets = draw.pick([self.ranks, 2 * self.ranks + 1, 40])
                rows = max(1, rows // buckets) * buckets
            if kind.startswith("collision"):
                rows = max(1, rows // 960) * 960
            table = Table(
                name="weight" if kind == "plain_bag" else f"table_{index}_{i}",
                rows=rows,
                dim=draw.pick(dims),
                features=tuple(
                    f"feature_{index}_{i}_{j}" for j in range(draw.pick(family.features))
                ),
                data_type=draw.pick(family.dtypes),
                buckets=buckets,
                stashed=draw.chance(0.1),
            )
            if identical and tables:
                table = replace(tables[0], name=table.name, features=table.features[:1])
            tables.append(table)
        return tables

    def capacity(self, tables: list[Table]) -> int:
        batch = self.batch_size or 512
        weights = sum(table.bytes for table in tables) / self.ranks
        # Inputs and outputs in flight, and the input buffers that reservations set aside.
        lookups = sum(8 * batch * (table.dim + 200) for table in tables)
        scale = self.draw.uniform(*MEMORY[self.draw.pick(self.family.memory)])
        return int(scale * (weights + lookups)) + 1

    def topology(self, capacity: int) -> Topology:
        draw, family = self.draw, self.family
        return parts.make_topology(
            draw,
            ranks=self.ranks,
            hosts=self.hosts,
            device=self.device,
            capacity=capacity,
            uneven=draw.chance(family.uneven),
            custom_bandwidth=draw.chance(family.custom_bandwidth),
            ssd=draw.pick(family.ssd),
        )

    def sharders(self, kinds: list[str]) -> list[Any]:
        draw, family = self.draw, self.family
        by_type: dict[type, Any] = {}
        for kind in kinds:
            fused_params = None
            if draw.chance(family.fused_params):
                fused_params = {
                    "cache_load_factor": draw.pick([0.05, 0.4]),
                    "prefetch_pipeline": draw.chance(0.5),
                }
            comms = None
            if draw.chance(family.comms):
                comms = quantised_comms(draw)
            sharder = make_sharder(kind, fused_params, comms)
            by_type.setdefault(sharder.module_type, sharder)
        return list(by_type.values())

    def constraints(
        self, kinds: list[str], groups: list[list[Table]]
    ) -> dict[str, ParameterConstraints] | None:
        draw, family = self.draw, self.family
        constraints = {
            table.name: self.table_constraints(kind, table)
            for kind, group in zip(kinds, groups, strict=True)
            for table in group
            if len(table.features) > 1 or draw.chance(family.constrained)
        }
        return constraints or None

    def table_constraints(self, kind: str, table: Table) -> ParameterConstraints:
        draw, family = self.draw, self.family
        fields: dict[str, Any] = {}
        if draw.chance(0.4):
            fields["min_partition"] = draw.pick([4, 32, 64, 128])
        if draw.chance(family.cache):
            fields["cache_params"] = parts.cache_params(draw, table, with_stats=draw.chance(0.8))
        if draw.chance(family.device_group):
            fields["device_group"] = draw.pick(["cuda", "cpu", self.device])
        fields["sharding_types"] = self.sharding_types(kind)
        fields["compute_kernels"] = self.compute_kernels(kind, table)
        if table.buckets is not None and draw.chance(0.7):
            fields["use_virtual_table"] = True
        if "keyvalue" in family.kernels and draw.chance(0.6):
            fields["key_value_params"] = parts.key_value_params(draw)
        return parts.make_constraints(draw, table, **fields)

    def sharding_types(self, kind: str) -> list[str] | None:
        style = self.draw.pick(self.family.types)
        usable = parts.SHARDING_TYPES[:-1]
        if kind.startswith("tower"):
            usable = ["table_row_wise", "table_column_wise"]
        elif kind.startswith("quant"):
            usable = ["table_wise", "column_wise", "row_wise"]
        elif kind.startswith("collision"):
            usable = ["row_wise"]
        elif kind == "sequence" and self.device == "cuda":
            usable = ["table_wise", "column_wise", "row_wise", "data_parallel"]
        elif self.device == "cpu":
            usable = usable[:4]
        elif self.device == "mtia":
            usable = ["table_wise", "column_wise"]
        if style == "free":
            return None
        if style == "grid":
            return ["grid_shard", *self.draw.sample(usable, 1)][: self.draw.randint(1, 2)]
        if style == "columns":
            return self.draw.subset(["column_wise", "table_column_wise"])
        if style in ("one", "two"):
            return self.draw.sample(usable, min(len(usable), 1 + (style == "two")))
        return self.draw.subset(usable)

    def compute_kernels(self, kind: str, table: Table) -> list[str] | None:
        draw = self.draw
        style = draw.pick(self.family.kernels)
        if kind.startswith("quant"):
            return draw.subset(parts.QUANT_KERNELS) if style == "quant" else None
        if style == "hbm":
            return ["fused", "dense"]
        if style == "offload":
            return [*draw.subset(parts.OFFLOAD_KERNELS), "fused_uvm_caching", "dense"]
        if style == "keyvalue":
            kernels = parts.KEY_VALUE_KERNELS[: 1 if table.buckets is None else None]
            return [*draw.subset(kernels), "dense", *draw.pick([[], ["fused"]])]
        return None

    def planner_kwargs(
        self,
        topology: Topology,
        constraints: Any,
        capacity: int,
        style: str,
        inference: bool,
    ) -> dict[str, Any]:
        draw, family = self.draw, self.family
        inference = inference and draw.chance(0.7)
        kwargs: dict[str, Any] = {
            "topology": topology,
            "batch_size": self.batch_size,
            "constraints": constraints,
            "storage_reservation": parts.make_reservation(
                draw, draw.pick(family.reservation), capacity
            ),
            "proposer": parts.make_proposers(draw, draw.pick(family.proposer)),
            "partitioner": parts.make_partitioner(draw, draw.pick(family.partitioner)),
            "timeout_seconds": draw.pick([None, None, 100_000]),
        }
        if draw.chance(0.8):
            # The default statistics take longer than most of these plans.
            kwargs["stats"] = []
        exact_order = draw.chance(family.exact_order)
        special_storage = draw.chance(family.storage)
        if style == "default" and not exact_order and not special_storage:
            return kwargs
        if style == "default":
            style = "factory"
        batch_size = self.batch_size or 512
        kwargs["enumerator"] = EmbeddingEnumerator(
            topology,
            batch_size,
            constraints,
            estimator=[
                parts.perf_estimator(draw, style, topology, constraints, inference),
                parts.storage_estimator(draw, topology, constraints, inference),
            ],
            use_exact_enumerate_order=exact_order,
        )
        return kwargs
