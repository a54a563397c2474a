"""Hits in a directory with a growing number of entries."""

import random
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cache_runs import Way, plan_of, time_ways
from bench.progress import Progress
from bench.runs import Case
from fastplan import EmbeddingShardingPlanner as FastPlanner
from fastplan.cache.stores import DirectoryStore

KEY_BITS = 160


def measure_entries(case: Case, counts: list[int], repetitions: int) -> dict[str, Any]:
    """Times of hits by the number of entries; the directories are removed afterwards."""
    expected = plan_of(case, case.planner(partial(FastPlanner, cache=False)))
    with TemporaryDirectory(prefix="fastplan-bench-") as root:
        ways = []
        for count in counts:
            directory = Path(root, str(count))
            planner_class = partial(FastPlanner, cache=directory)
            plan_of(case, case.planner(planner_class))
            with Progress(f"a cache of {count:,} entries is made"):
                _fill(directory, count)
            ways.append(
                Way(name=str(count), planner_class=planner_class, cache_status="hit"),
            )
        # One hit in each first, because the directories were filled one after the other.
        time_ways(case, ways, 1, expected)
        with Progress(f"hits among up to {max(counts):,} entries"):
            times, wrong = time_ways(case, ways, repetitions, expected)
    return {
        "tables": len(case.constraints),
        "ranks": case.ranks,
        "sizes": [{"entries": count, **times[str(count)].record()} for count in counts],
        "differences": wrong,
    }


def _fill(directory: Path, count: int) -> None:
    """Copies the only entry to random keys until there are `count` entries."""
    (entry,) = directory.rglob("*.plan")
    data = entry.read_bytes()
    generator = random.Random(count)
    for _ in range(count - 1):
        # The same layout as the store's, without its sync of each file, which would take minutes.
        key = f"{generator.getrandbits(KEY_BITS):0{KEY_BITS // 4}x}"
        folder = directory / key[:2] / key
        folder.mkdir(parents=True)
        (folder / entry.name).write_bytes(data)
    found = len(list(DirectoryStore(directory).keys()))
    if found != count:
        raise RuntimeError(f"the store finds {found} entries in a directory made with {count}")
