"""Shows that two builds of fastplan plan alike, to the bit.

`python -m bench.same_plans --write FILE` plans the benchmark's instances and writes what came out:
digests of plans, ratings and bounds. `python -m bench.same_plans --against FILE` plans them again,
with another build, and lists every difference. Only public names are used, so that both files can
come from releases far apart.
"""

import argparse
import hashlib
import inspect
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchrec.distributed.planner.partitioners import MemoryBalancedPartitioner
from torchrec.distributed.planner.proposers import DynamicProgrammingProposer
from torchrec.distributed.planner.types import PlannerError

import fastplan
from bench.models import criteo, synthetic
from bench.runs import GIB, Case, quiet
from fastplan import EmbeddingShardingPlanner, Objectives

# Builds from before 0.1.0 have neither Replan nor the argument `optimize`.
Replan = getattr(fastplan, "Replan", None) or fastplan.ReplanPolicy
SIZES = ((26, 8), (100, 16), (100, 64), (300, 64), (1000, 64), (1000, 256))
SEEDS = range(3)
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "dynamic programming": lambda: {"proposer": DynamicProgrammingProposer()},
    "memory balanced": lambda: {"partitioner": MemoryBalancedPartitioner()},
}
# Moves alone bound the search, so that a build's speed does not change its plan.
MOVES = {"time_budget": None, "move_budget": 20_000}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.same_plans", description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--write", type=Path, metavar="FILE", help="write the results here")
    group.add_argument("--against", type=Path, metavar="FILE", help="compare with these results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {name: facts for tables, ranks in SIZES for name, facts in instances(tables, ranks)}
    if arguments.write is not None:
        arguments.write.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} results written to {arguments.write}")
        return 0
    before = json.loads(arguments.against.read_text())
    differ = [name for name in sorted(before.keys() | found) if before.get(name) != found.get(name)]
    for name in differ:
        print(f"{name}: {before.get(name)} != {found.get(name)}")
    figures = sum(len(facts) for facts in found.values())
    print(f"{len(found)} plans with {figures} figures, {len(differ)} of them differ")
    return 1 if differ else 0


def instances(tables: int, ranks: int) -> Any:
    """Name and results of each instance of a size."""
    for seed in SEEDS if tables != 26 else (0,):
        module, constraints = criteo() if tables == 26 else synthetic(tables, seed)
        later = {name: _busier(rule, name) for name, rule in constraints.items()}
        for hbm in (80, 24):
            facts = {"module": module, "constraints": constraints}
            case = Case(ranks=ranks, batch_size=512, hbm_bytes=hbm * GIB, **facts)
            name = f"{tables}x{ranks} seed {seed} {hbm} GiB"
            first, result = planned(case)
            yield name, result
            yield f"{name} optimize", planned(case, **better(seed=seed))[1]
            if tables <= 300:
                memory = Objectives(minimize="memory")
                yield f"{name} memory", planned(case, **better(seed=seed, objectives=memory))[1]
                for part, arguments in PARTS.items():
                    yield f"{name} {part}", planned(case, **arguments())[1]
                yield f"{name} too large", planned(replace(case, hbm_bytes=3 * GIB))[1]
            if first is None:
                continue
            after = replace(case, constraints=later)
            policy = Replan(move_budget=20_000)
            yield f"{name} replan", planned(after, previous=first, replan=policy)[1]
        # Ranks that are nearly full, where many proposals fail or are given up, and a time-out.
        for hbm in (16, 14, 12, 10):
            case = Case(ranks=ranks, batch_size=512, hbm_bytes=hbm * GIB, **facts)
            yield f"{tables}x{ranks} seed {seed} {hbm} GiB", planned(case)[1]
        yield f"{tables}x{ranks} seed {seed} time-out", planned(case, timeout_seconds=100_000)[1]


def better(**settings: Any) -> dict[str, Any]:
    """The planner's arguments for a better plan."""
    if "optimize" in inspect.signature(EmbeddingShardingPlanner).parameters:
        return {"optimize": fastplan.Optimize(**MOVES, **settings)}
    return {"mode": "optimize", **MOVES, **settings}


def _busier(rule: Any, name: str) -> Any:
    """The constraint of a table some time later: every tenth one is looked up more often."""
    if not name.endswith("0"):
        return rule
    return replace(rule, pooling_factors=[2 * factor for factor in rule.pooling_factors])


def planned(case: Case, **more: Any) -> tuple[Any, dict[str, Any]]:
    """The planner, None where nothing fits, and what it found."""
    planner = case.planner(EmbeddingShardingPlanner, deterministic=True, **more)
    try:
        with quiet():
            plan = planner.plan(case.module, case_sharders())
    except PlannerError as error:
        return None, {"error": str(error)[:200]}
    run = planner.last_run
    facts = {
        "plan": hashlib.blake2b(repr(rows(plan)).encode(), digest_size=12).hexdigest(),
        "rating": run.rating.hex(),
        "bound": None if run.lower_bound is None else float(run.lower_bound).hex(),
        "proposals": run.proposals,
        "plans": run.plans,
    }
    if run.replan is not None:
        facts["moved"] = [run.replan.moved, run.replan.least, run.replan.held]
        facts["followed"] = run.replan.followed
    return planner, facts


def rows(plan: Any) -> list[Any]:
    """A plan as plain values."""
    return [
        (
            path,
            name,
            each.sharding_type,
            each.compute_kernel,
            each.ranks,
            None
            if each.sharding_spec is None
            else [
                (shard.shard_offsets, shard.shard_sizes, str(shard.placement))
                for shard in each.sharding_spec.shards
            ],
        )
        for path, tables in plan.plan.items()
        for name, each in tables.items()
    ]


def case_sharders() -> list[Any]:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    return [EmbeddingBagCollectionSharder()]


if __name__ == "__main__":
    sys.exit(main())
