"""All benchmarks: how they are run, and what the page of results says of them."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NEXT_TORCHREC = ROOT / ".torchrec" / "1.9.2"


class Part(NamedTuple):
    """A benchmark with a result file of its name and, where it draws one, a picture."""

    name: str
    title: str
    method: str
    module: str
    arguments: tuple[str, ...] = ()
    torchrec: Path | None = None  # another one than the environment's


PARTS = (
    Part(
        "planning",
        "Planning",
        "A whole `plan()` with `stats=[]` by both planners. Plans and ratings are compared.",
        "bench.planning",
        ("--torchrec-limit", "200"),
    ),
    Part(
        "planning-next",
        "Planning, beside TorchRec 1.9.2",
        "The same with the newer TorchRec.",
        "bench.planning",
        ("--grid", "26x8,100x16", "--name", "planning-next"),
        NEXT_TORCHREC,
    ),
    Part(
        "cache",
        "Cache and broadcast",
        "A restart with a plan that is known: TorchRec's `PlanLoader`, which still enumerates,\n"
        "and fastplan's cache; and a plan on its way to the other ranks.",
        "bench.cache",
    ),
    Part(
        "cache-next",
        "Cache, beside TorchRec 1.9.2",
        "The same with the newer TorchRec.",
        "bench.cache",
        ("--grid", "26x8,100x16", "--parts", "hits", "--name", "cache-next"),
        NEXT_TORCHREC,
    ),
    Part(
        "sweep",
        "Precomputing",
        "200 plans by `fastplan precompute`, beside one plan of TorchRec's planner.",
        "bench.sweep",
    ),
    Part(
        "custom_cost",
        "Custom costs",
        "A cost and an objective written in Python and compiled: [custom-cost.md](custom-cost.md).",
        "bench.custom_cost",
    ),
    Part(
        "ett",
        "Starts, recoveries and Effective Training Time",
        "A real job on gloo ranks, killed and started again: [ett.md](ett.md).",
        "bench.ett",
    ),
    Part(
        "ett_fake",
        "Starts of large jobs",
        "One rank of many, whose collectives torch's fake process group answers at once.",
        "bench.ett_fake",
    ),
    Part(
        "ett_recorder",
        "The recorder itself",
        "What recording costs a training step.",
        "bench.ett_recorder",
    ),
    Part(
        "init",
        "The start of a rank",
        "One rank from the plan that it receives to its sharded model:\n"
        "[initialisation.md](initialisation.md).",
        "bench.init",
    ),
    Part(
        "measure",
        "Estimated and measured",
        "Seven plans of one model on CPU ranks: [measure.md](measure.md).",
        "bench.measure",
    ),
    Part(
        "quality",
        "Better plans",
        "Ratings, and how far they are above a proven bound: [optimize.md](optimize.md).",
        "bench.quality",
        ("--cpu",),
    ),
    Part(
        "quality_seeds",
        "Better plans, by seed",
        "The gap that one second proves.",
        "bench.quality_seeds",
        ("--cpu",),
    ),
    Part(
        "quality_counts",
        "Better plans, counted",
        "What must hold of every optimized plan, and what mostly does, over random instances.",
        "bench.quality_counts",
    ),
    Part(
        "replan",
        "Re-planning",
        "Bytes moved and ratings when a model or a cluster changes: [replan.md](replan.md).",
        "bench.replan",
    ),
)
