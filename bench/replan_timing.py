"""The time of plan() at 1000 x 64 with 1 % of the tables changed: cold, and as a re-plan."""

import random
import statistics
import time
from typing import Any
from unittest.mock import patch

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

from bench.replan_models import add, both, case_of, random_state, remove
from bench.runs import quiet
from fastplan import EmbeddingShardingPlanner as FastPlanner

RUNS = 45
_WORK = ("estimate", "search", "replan")


def timing() -> dict[str, Any]:
    """Medians and quartiles in CPU milliseconds; both sides take turns."""
    state = random_state(1000, 8, 8)
    changed = both(remove(5), add(5))(state, random.Random(0))
    before, after = case_of(state), case_of(changed)
    sharders = [EmbeddingBagCollectionSharder()]
    with quiet():
        first = before.planner(FastPlanner)
        first.plan(before.module, sharders)
    whole: dict[str, list[float]] = {"cold": [], "replan": []}
    work: dict[str, list[float]] = {"cold": [], "replan": []}
    ratings, moved = {}, 0.0
    for _ in range(RUNS):
        for who, more in (("cold", {}), ("replan", {"previous": first})):
            # CPU time, which other processes do not add to.
            with quiet(), patch("fastplan.planning.run.perf_counter", time.process_time):
                planner = after.planner(FastPlanner, **more)
                if more:
                    planner._fastplan.replanning.previous(None)
                began = time.process_time()
                planner.plan(after.module, sharders)
            whole[who].append(1000 * (time.process_time() - began))
            run = planner.last_run
            assert run is not None
            work[who].append(1000 * sum(run.seconds.get(name, 0.0) for name in _WORK))
            ratings[who] = run.rating
            if run.replan is not None:
                moved = run.replan.moved_part
    return {
        "n": RUNS,
        "whole plan()": {who: statistics.median(times) for who, times in whole.items()},
        "estimate and search": {who: statistics.median(times) for who, times in work.items()},
        "quartiles": {
            name: {who: statistics.quantiles(times)[::2] for who, times in sides.items()}
            for name, sides in (("whole plan()", whole), ("estimate and search", work))
        },
        "rating": ratings,
        "moved_part": moved,
    }
