"""Poisons a plan cache in every way we know, and plans with it.

    python -m tests.torchrec.poison            all ways, each in a process of its own: what came of
                                             it, the seconds it took and the memory it needed

A way gets an empty store, the key and entry of the honest plan, and writes what it likes.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology

from fastplan import Cache, EmbeddingShardingPlanner, explain_miss
from fastplan.cache.entry import (
    MAX_ENTRY,
    Entry,
    decode,
    encode,
    entry_name,
    pack_request,
    request_bytes,
    sketch_of,
    table_names,
)
from fastplan.cache.fingerprint import fingerprint
from fastplan.cache.stores import DirectoryStore, Store
from fastplan.model.plan import PlanRecord
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX

TIMEOUT = 5.0
MEMORY = 200 << 20
RANKS = 8
NAMES = [f"t{i}" for i in range(40)]
# What the honest plan may choose from: anything else is a plan that the user forbade.
ALLOWED = ("fused", "fused_uvm_caching")
SHARDERS = [EmbeddingBagCollectionSharder()]


def model(names: list[str] = NAMES) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=64, num_embeddings=100_000 + i, feature_names=[f"f_{name}"]
        )
        for i, name in enumerate(names)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def planner(cache: Any, kernels: tuple[str, ...] = ALLOWED, **arguments: Any) -> Any:
    topology = Topology(world_size=RANKS, compute_device="cuda", local_world_size=4)
    rules = {name: ParameterConstraints(compute_kernels=list(kernels)) for name in NAMES}
    return EmbeddingShardingPlanner(
        topology=topology, constraints=rules, cache=cache, stats=[], **arguments
    )


def shared(folder: Any) -> DirectoryStore:
    """A cache that others can write to, too."""
    os.chmod(folder, 0o777)
    return DirectoryStore(folder)


def honest(kernels: tuple[str, ...] = ALLOWED) -> Entry:
    """The entry of an honest plan."""
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryStore(folder)
        made = planner(Cache(store), kernels)
        made.plan(model(), SHARDERS)
        ((_, data),) = store.read(made.last_run.cache.fingerprint)
        return decode(data)


def near(entry: Entry, **changes: Any) -> Entry:
    """The entry of another request that is like the honest one but for these parts."""
    document = json.loads(request_bytes(entry)) | {"ranks": RANKS}
    document["context"] = {**document["context"], "note": "another request"}
    return _with_request(entry, json.dumps({**document, **changes}).encode())


def _with_request(entry: Entry, canonical: bytes) -> Entry:
    return replace(entry, key=fingerprint(canonical), request=pack_request(canonical))


def put(store: Store, entry: Entry, number: int = 0) -> None:
    """Under a name that says it is about the same tables."""
    sketch = sketch_of(table_names({"table_count": len(NAMES), "tables": _name_columns()}))
    store.write(entry.key, entry_name(f"{number:020x}", RANKS, sketch), encode(entry))


def _name_columns() -> dict[str, Any]:
    return {"path": {"all": ""}, "name": NAMES}


def deep_request(store: Store, entry: Entry) -> None:
    put(store, _with_request(entry, b"[" * 100_000))


def deep_context(store: Store, entry: Entry) -> None:
    deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    canonical = request_bytes(near(entry, context="here")).replace(b'"here"', deep)
    put(store, _with_request(entry, canonical))


def many_tables(store: Store, entry: Entry) -> None:
    for number, count in enumerate((1e30, 10**30, 10**15, 4 * 10**8, -1, 0, "40", None, True)):
        put(store, near(entry, table_count=count), number)
        columns = {"path": {"all": ""}, "name": {"all": "t"}}
        put(store, near(entry, table_count=count, tables=columns), number)


def many_ranks(store: Store, entry: Entry) -> None:
    (run,) = entry.capacities
    for ranks in (3_000_000, 1 << 24, 1 << 62):
        capacities = ((ranks, *run[1:]),)
        put(store, replace(near(entry, ranks=ranks), capacities=capacities))


def wide_tables(store: Store, entry: Entry) -> None:
    tables = json.loads(request_bytes(entry))["tables"]
    for number, (field, value) in enumerate(
        (field, value)
        for field in ("dim", "rows", "min_partition", "buckets", "bytes", "prefetch_passes")
        for value in (1 << 20, (1 << 63) - 1, -1, 0)
    ):
        put(store, near(entry, tables={**tables, field: {"all": value}}), number)


def many_shards(store: Store, entry: Entry) -> None:
    """Tables that are cut into more columns than any has."""
    document = json.loads(request_bytes(entry))
    tables = {**document["tables"], "dim": {"all": 1 << 20}, "min_partition": {"all": 4}}
    record = PlanRecord.unpack(entry.payload)
    kind = SHARDING_TYPE_INDEX["column_wise"]
    for number, ranks in enumerate((0, 1 << 22)):
        cut = replace(
            record,
            sharding_type=np.full(len(record.table), kind, np.uint8),
            ranks=np.zeros(ranks, np.int32),
        )
        put(store, replace(near(entry, tables=tables), payload=cut.pack()), number)


def bombs(store: Store, entry: Entry) -> None:
    """A few kB that unpack to as much as they like."""
    put(store, _with_request(entry, b'{"tables":[' + b"[]," * 20_000_000 + b"[]]}"), 1)
    many = 1 << 22
    record = PlanRecord(
        table=np.arange(many, dtype=np.int32),
        sharding_type=np.zeros(many, np.uint8),
        kernel=np.zeros(many, np.uint8),
        load_factor=np.full(many, np.nan),
        ranks=np.zeros(1 << 25, np.int32),
        rating=1.0,
    )
    put(store, replace(entry, payload=record.pack()), 2)
    put(store, replace(near(entry), payload=record.pack()), 3)


def bad_certificates(store: Store, entry: Entry) -> None:
    for number, certificate in enumerate((b"x", b"\x01" + b"\xff" * 60_000)):
        put(store, replace(near(entry), certificate=certificate), number)


def one_slow_rank(store: Store, entry: Entry) -> None:
    """A legal plan with the right rating, in which one rank has every table."""
    record = PlanRecord.unpack(entry.payload)
    cost = planner(None)
    cost.plan(model(), SHARDERS)
    columns = cost._fastplan.result.searched.problem.space
    kind, kernel = SHARDING_TYPE_INDEX["table_wise"], KERNEL_INDEX["fused_uvm_caching"]
    chosen = np.flatnonzero((columns.option_type == kind) & (columns.option_kernel == kernel))
    rating = 0.0
    for run in columns.option_run_begin[chosen].tolist():
        parts = ("fwd_compute", "bwd_compute", "fwd_comms", "bwd_comms", "prefetch_compute")
        rating += sum(float(getattr(columns, f"run_{part}")[run]) for part in parts)
    tables = len(record.table)
    bad = PlanRecord(
        table=np.arange(tables, dtype=np.int32),
        sharding_type=np.full(tables, kind, np.uint8),
        kernel=np.full(tables, kernel, np.uint8),
        load_factor=np.full(tables, np.nan),
        ranks=np.zeros(tables, np.int32),
        rating=rating,
    )
    put(store, replace(entry, payload=bad.pack(), rating=rating), 1)
    # And for whoever follows the plan of a model that is nearly this one.
    put(store, replace(near(entry), payload=bad.pack(), rating=rating), 2)


def forbidden_kernels(store: Store, entry: Entry) -> None:
    record = PlanRecord.unpack(entry.payload)
    tables = len(record.table)
    number = 0
    for kernel in ("fused_uvm", "dense", "fused", "key_value", "quant"):
        for factor in (np.nan, -1.0, 0.5, 1.0):
            number += 1
            changed = replace(
                record,
                kernel=np.full(tables, KERNEL_INDEX[kernel], np.uint8),
                load_factor=np.full(tables, factor),
            )
            put(store, replace(entry, payload=changed.pack()), number)


def no_cache_left(store: Store, entry: Entry) -> None:
    record = PlanRecord.unpack(entry.payload)
    for number, factor in enumerate((0.0, 1e-300, 0.999, 2.0, np.inf)):
        factors = np.full(len(record.table), factor)
        kernel = np.full(len(record.table), KERNEL_INDEX["fused_uvm_caching"], np.uint8)
        changed = replace(record, load_factor=factors, kernel=kernel)
        put(store, replace(entry, payload=changed.pack()), number)


def huge_files(store: Store, entry: Entry) -> None:
    """Files without content, of gigabytes together."""
    put(store, entry)  # makes the folder
    root = store.describe()
    folder = os.path.join(root, entry.key[:2], entry.key)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    for number in range(200):
        with open(os.path.join(folder, f"{number:020x}.plan"), "wb") as file:
            file.truncate(MAX_ENTRY)
    with open(os.path.join(folder, "a.plan"), "wb") as file:
        file.truncate(1 << 40)


def no_files(store: Store, entry: Entry) -> None:
    """Links, folders and pipes in the places of entries."""
    put(store, entry)
    folder = os.path.join(store.describe(), entry.key[:2], entry.key)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.symlink("/dev/zero", os.path.join(folder, "a.plan"))
    os.mkfifo(os.path.join(folder, "b.plan"))
    os.mkdir(os.path.join(folder, "c.plan"))


WAYS = {
    way.__name__: way
    for way in (
        deep_request,
        deep_context,
        many_tables,
        many_ranks,
        wide_tables,
        many_shards,
        bombs,
        bad_certificates,
        one_slow_rank,
        forbidden_kernels,
        no_cache_left,
        huge_files,
        no_files,
    )
}


def best_rating() -> float:
    """Of TorchRec's plan for the model, without a cache."""
    made = planner(False)
    made.plan(model(), SHARDERS)
    return float(made.last_run.rating)


def use(cache: Cache, **arguments: Any) -> Any:
    """Plans with a cache and asks why it missed; returns the planner's `last_run`."""
    made = planner(cache, **arguments)
    plan = made.plan(model(), SHARDERS)
    tables = [table for module in plan.plan.values() for table in module.values()]
    kernels = {table.compute_kernel for table in tables}
    assert kernels <= {*ALLOWED}, f"a forbidden plan: {kernels}"
    if made.last_run.cache.request is not None:
        str(explain_miss(made.last_run.cache, cache))
    return made.last_run


# Without and with a look at the entries of other requests.
USES: tuple[dict[str, Any], ...] = ({}, {"replan": "auto"})


def _peak(reset: bool = False) -> int:
    """The most memory this process has had since the last reset, in bytes."""
    if reset:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def _one(way: str) -> None:
    """Poisons a cache, uses it, and prints what came of it as JSON."""
    best, entry = best_rating(), honest()
    statuses, worst, seconds, memory = [], 0.0, 0.0, 0
    for arguments in USES:
        with tempfile.TemporaryDirectory() as folder:
            store = shared(folder)
            WAYS[way](store, entry)
            gc.collect()
            before = _peak(reset=True)
            begin = time.perf_counter()
            run = use(Cache(store, timeout=TIMEOUT), **arguments)
            seconds = max(seconds, time.perf_counter() - begin)
            memory = max(memory, _peak() - before)
        statuses.append(run.cache.status)
        worst = max(worst, run.rating / best)
    print(json.dumps({"status": statuses, "worst": worst, "s": seconds, "MB": memory >> 20}))


def main() -> int:
    if len(sys.argv) > 1:
        _one(sys.argv[1])
        return 0
    failed = 0
    for way in WAYS:
        command = [sys.executable, "-m", "tests.torchrec.poison", way]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = done.stdout.strip().splitlines()
        good = False
        if done.returncode == 0 and told:
            found = json.loads(told[-1])
            good = found["s"] <= TIMEOUT and found["MB"] <= MEMORY >> 20 and found["worst"] <= 2
        text = told[-1] if told else done.stderr.strip().splitlines()[-1]
        print(f"{'ok  ' if good else 'BAD '} {way}: {text}", flush=True)
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
