"""Whether a plan and a module have the same tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.embeddingbag import EmbeddingBagSharder
from torchrec.distributed.fused_embedding import FusedEmbeddingCollectionSharder
from torchrec.distributed.planner.utils import sharder_name
from torchrec.distributed.quant_embeddingbag import (
    QuantFeatureProcessedEmbeddingBagCollectionSharder,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan

from fastplan.torchrec.plan_placement import table_shape

_MOST_NAMED = 10


class PlanMismatch(ValueError):
    """A plan for other tables than the module has.

    `missing` are the module's tables without a plan, `unknown` the plan's tables that the module
    does not have, `changed` those of another shape; each an entry of text per table.
    """

    def __init__(
        self, source: str, missing: list[str], unknown: list[str], changed: list[str]
    ) -> None:
        parts = [
            f"{len(tables)} {what}: {', '.join(tables[:_MOST_NAMED])}"
            + (f" and {len(tables) - _MOST_NAMED} more" if len(tables) > _MOST_NAMED else "")
            for what, tables in (
                ("of the module's tables are not in the plan", missing),
                ("of the plan's tables are not in the module", unknown),
                ("have another shape", changed),
            )
            if tables
        ]
        super().__init__(f"{source} does not match the module: {'; '.join(parts)}")
        self.missing = tuple(missing)
        self.unknown = tuple(unknown)
        self.changed = tuple(changed)


def check_module(
    plan: ShardingPlan, module: nn.Module, sharders: Iterable[Any] | None, source: str
) -> dict[tuple[str, str], tuple[nn.Module, Any]]:
    """The holder and the parameter of each table of the plan, by module path and table name.

    Raises PlanMismatch, which starts with `source`, if the module's tables are not the plan's.
    """
    found, missing = _tables(plan, module, sharders)
    unknown, changed = [], []
    for path, module_plan in plan.plan.items():
        for name, sharding in module_plan.items():
            if (path, name) not in found:
                unknown.append(_full_name(path, name))
                continue
            planned = table_shape(sharding.sharding_spec)
            actual = tuple(found[path, name][1].shape)
            if planned is not None and planned != actual:
                changed.append(f"{_full_name(path, name)} is {_by(actual)}, planned {_by(planned)}")
    if missing or unknown or changed:
        raise PlanMismatch(source, missing, unknown, changed)
    return found


def _full_name(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _tables(
    plan: ShardingPlan, module: nn.Module, sharders: Iterable[Any] | None
) -> tuple[dict[tuple[str, str], tuple[nn.Module, Any]], list[str]]:
    """The tables of modules that the plan names, and the names of all others in the module.

    Sharders other than the default ones are asked only where the plan has an entry: without one,
    a module of theirs is as likely to be left alone on purpose.
    """
    usual = _by_type(get_default_sharders() if sharders is None else sharders)
    every = _by_type(_further_sharders()) | usual if sharders is None else usual
    above = {path[:i] for path in plan.plan for i, char in enumerate(path) if char == "."}
    above |= {""} if any(plan.plan) else set()
    found: dict[tuple[str, str], tuple[nn.Module, Any]] = {}
    missing: list[str] = []
    waiting = [("", module)]
    while waiting:
        path, child = waiting.pop()
        planned = plan.plan.get(path)
        known = usual if planned is None else every
        sharder = known.get(sharder_name(type(child)))
        if sharder is None or (planned is None and path in above):
            prefix = f"{path}." if path else ""
            inner = [(prefix + name, part) for name, part in child.named_children()]
            waiting.extend(reversed(inner))
            continue
        for name, parameter in sharder.shardable_parameters(child).items():
            if planned is not None:
                found[path, name] = (child, parameter)
            if planned is None or name not in planned:
                missing.append(_full_name(path, name))
    return found, missing


def _by_type(sharders: Iterable[Any]) -> dict[str, Any]:
    return {sharder_name(sharder.module_type): sharder for sharder in sharders}


def _further_sharders() -> list[Any]:
    return [
        EmbeddingBagSharder(),
        EmbeddingTowerCollectionSharder(),
        EmbeddingTowerSharder(),
        FusedEmbeddingCollectionSharder(),
        QuantFeatureProcessedEmbeddingBagCollectionSharder(),
    ]
