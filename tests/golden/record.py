"""Plan one synthetic model with default components and write down the result.

    PYTHONHASHSEED=0 python tests/golden/record.py --tables 100 --ranks 64

prints one JSON object; `--write` stores it beside this file instead, named after the
size and TorchRec's version. TorchRec 1.8 derives the order of its search space from
string hashes, so a record holds for one hash seed only: the script refuses any other.
Recording 300 x 64 with TorchRec takes tens of minutes, reading it back none.
"""

import argparse
import hashlib
import json
import logging
import os
import random
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

HASH_SEED = "0"
LOCAL_WORLD_SIZE = 8
# Left free, one type serves every table best. Tables that may not use it keep uniform
# plans out and bring every way of placing shards into the record.
SHARDING_TYPES = [
    None,
    None,
    ["table_wise", "table_column_wise", "table_row_wise"],
    ["row_wise", "data_parallel"],
    ["column_wise", "row_wise"],
]


def record_path(tables: int, ranks: int, torchrec_version: str) -> Path:
    """Where the record of one size and one TorchRec version lives."""
    name = f"{tables}x{ranks}-torchrec-{torchrec_version}.json"
    return Path(__file__).with_name(name)


def torchrec_version() -> str:
    """Version of the TorchRec that this process imports, not of the one installed last."""
    import torchrec

    for distribution_parent in Path(torchrec.__file__).parents[1:2]:
        for info in sorted(distribution_parent.glob("torchrec-*.dist-info")):
            return info.name.removeprefix("torchrec-").removesuffix(".dist-info")
    return version("torchrec")


def build_case(tables: int, ranks: int) -> SimpleNamespace:
    """The model, its constraints and the topology: a function of the sizes alone."""
    import torch
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.types import ParameterConstraints, Topology
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

    draw = random.Random(f"golden {tables} {ranks}")
    configs, constraints = [], {}
    for i in range(tables):
        name = f"table_{i}"
        configs.append(
            EmbeddingBagConfig(
                name=name,
                feature_names=[f"feature_{i}"],
                num_embeddings=int(10 ** draw.uniform(3.0, 7.7)),
                embedding_dim=draw.choice([16, 32, 64, 64, 128, 128, 256, 512]),
            )
        )
        constraints[name] = ParameterConstraints(
            sharding_types=draw.choice(SHARDING_TYPES),
            pooling_factors=[round(10 ** draw.uniform(0.0, 2.0), 2)],
        )
    return SimpleNamespace(
        module=EmbeddingBagCollection(tables=configs, device=torch.device("meta")),
        sharders=[EmbeddingBagCollectionSharder()],
        constraints=constraints,
        topology=Topology(
            world_size=ranks, local_world_size=LOCAL_WORLD_SIZE, compute_device="cuda"
        ),
    )


def planner_class(name: str) -> type:
    """The planner under its package's name: `torchrec` or `fastplan`."""
    if name == "fastplan":
        from fastplan import EmbeddingShardingPlanner
    else:
        from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
    return EmbeddingShardingPlanner


def search_space_digest(options) -> str:
    """Hash of every option and every bit of every shard's estimate, in order."""
    digest = hashlib.sha256()
    for option in options:
        digest.update(f"{option.fqn} {option.sharding_type} {option.compute_kernel}\n".encode())
        for shard in option.shards:
            perf, storage = shard.perf, shard.storage
            times = (
                perf.fwd_compute,
                perf.fwd_comms,
                perf.bwd_compute,
                perf.bwd_comms,
                perf.input_dist_comms,
                perf.prefetch_compute,
            )
            digest.update(
                f"{shard.size} {shard.offset} {[float(t).hex() for t in times]} "
                f"{(storage.hbm, storage.ddr, storage.ssd)}\n".encode()
            )
    return digest.hexdigest()


def record(planner_name: str, tables: int, ranks: int) -> dict:
    """Plan the case and return what identifies the result."""
    from torchrec.distributed.planner.perf_models import NoopPerfModel

    case = build_case(tables, ranks)
    planner = planner_class(planner_name)(topology=case.topology, constraints=case.constraints)
    plan = planner.plan(case.module, case.sharders)
    search_space = planner._enumerator.last_stored_search_space
    result = {
        "tables": tables,
        "ranks": ranks,
        "rating": NoopPerfModel(case.topology).rate(planner._best_plan).hex(),
        "num_proposals": planner._num_proposals,
        "num_plans": planner._num_plans,
        "options": len(search_space),
        "shards": sum(len(option.shards) for option in search_space),
        "search_space": search_space_digest(search_space),
        "plan": {
            path: {
                name: [sharding.sharding_type, sharding.compute_kernel, sharding.ranks]
                for name, sharding in module_plan.items()
            }
            for path, module_plan in plan.plan.items()
        },
    }
    if planner_name == "fastplan":
        result["engine"] = planner.last_run.engine
    return result


def compact_json(result: dict) -> str:
    """JSON with one line per table, so that a changed table is one changed line."""
    plan = result["plan"]
    head = json.dumps({key: value for key, value in result.items() if key != "plan"})
    modules = [
        f"{json.dumps(path)}: {{\n"
        + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}"
            for name, entry in tables.items()
        )
        + "}"
        for path, tables in plan.items()
    ]
    return head[:-1] + ', "plan": {' + ",\n".join(modules) + "}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--planner", choices=["torchrec", "fastplan"], default="torchrec")
    parser.add_argument("--tables", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--write", action="store_true", help="store instead of print")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        parser.error(f"set PYTHONHASHSEED={HASH_SEED}: the record depends on it")
    logging.disable(logging.CRITICAL)
    text = compact_json(record(arguments.planner, arguments.tables, arguments.ranks))
    if arguments.write:
        record_path(arguments.tables, arguments.ranks, torchrec_version()).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
