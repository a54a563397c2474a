"""All benchmarks: how to run them, and their headings on the page of results."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NEXT_TORCHREC = ROOT / ".torchrec" / "1.9.2"


class Part(NamedTuple):
    """A benchmark. Its result file, and its chart if it draws one, have its name."""

    name: str
    title: str
    method: str
    module: str
    arguments: tuple[str, ...] = ()
    torchrec: Path | None = None  # instead of the environment's


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
        "Planning, with TorchRec 1.9.2",
        "The same with the newer TorchRec.",
        "bench.planning",
        ("--grid", "26x8,100x16", "--name", "planning-next"),
        NEXT_TORCHREC,
    ),
    Part(
        "inputs",
        "Planning, by kind of input",
        "A whole `plan()` on other inputs than those above, compared with the loose input of the\n"
        "same size: tight memory, statistics, a time-out, towers, other proposers, other\n"
        "partitioners, and re-plans ([replan.md](replan.md)) with reading the previous plan.",
        "bench.inputs",
    ),
    Part(
        "step_search",
        "Planning by the predicted step",
        "A whole `plan()` with [hardware costs](hardware-costs.md) and with TorchRec's, in turn\n"
        "in one process. CPU time.",
        "bench.step_search",
    ),
    Part(
        "cache",
        "Cache and broadcast",
        "A restart with a stored plan: TorchRec's `PlanLoader`, which still enumerates, compared\n"
        "with fastplan's cache. Then the broadcast of a plan to the other ranks.",
        "bench.cache",
    ),
    Part(
        "cache-next",
        "Cache, with TorchRec 1.9.2",
        "The same with the newer TorchRec.",
        "bench.cache",
        ("--grid", "26x8,100x16", "--parts", "hits", "--name", "cache-next"),
        NEXT_TORCHREC,
    ),
    Part(
        "sweep",
        "Precomputing",
        "200 plans by `fastplan precompute`, compared with one plan by TorchRec's planner.",
        "bench.sweep",
    ),
    Part(
        "custom_cost",
        "Custom costs",
        "A cost and an objective written in Python and compiled: [custom-cost.md](custom-cost.md).",
        "bench.custom_cost",
    ),
    Part(
        "mixed",
        "Parts of frameworks",
        "The same custom parts in both planners, as two frameworks above TorchRec bring them:\n"
        "[compatibility.md](compatibility.md).",
        "bench.mixed",
    ),
    Part(
        "ett",
        "Starts, recoveries and Effective Training Time",
        "A real job on gloo ranks that is killed and started again: [ett.md](ett.md).",
        "bench.ett",
    ),
    Part(
        "restart",
        "Restarts without imports",
        "The same job under torchrun and under `fastplan run`: [restart.md](restart.md).",
        "bench.restart",
    ),
    Part(
        "ett_fake",
        "Starts of large jobs",
        "One rank of many. torch's fake process group answers its collectives at once. The plan\n"
        "is the first one of its process: about 27 ms of fastplan's plans are imports.",
        "bench.ett_fake",
    ),
    Part(
        "ett_recorder",
        "Cost of the ETT recorder",
        "The time that recording adds to a training step.",
        "bench.ett_recorder",
    ),
    Part(
        "ett_exporters",
        "Cost of the ETT exporters",
        "A step while figures go to Prometheus and OpenTelemetry: [fleet.md](fleet.md).",
        "bench.ett_exporters",
    ),
    Part(
        "fleet",
        "A fleet of 10,000 jobs",
        "First and later reads of generated recordings, and queries: [fleet.md](fleet.md).",
        "bench.fleet",
    ),
    Part(
        "fleet_gate",
        "Regressions of Time to Start",
        "Regressions that `fastplan ett gate` finds, and its false alarms: [fleet.md](fleet.md).",
        "bench.fleet_gate",
    ),
    Part(
        "fleet_mlperf",
        "Initialisation in MLPerf's runs",
        "Published logs of DLRM-DCNv2, read by `fastplan ett fleet`: [fleet.md](fleet.md).",
        "bench.fleet_mlperf",
    ),
    Part(
        "init",
        "The start of a rank",
        "The start of one rank, from receiving a plan to the sharded model:\n"
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
        "costs",
        "Hardware costs",
        "Estimates of single lookups and collectives, compared with published times:\n"
        "[hardware-costs.md](hardware-costs.md).",
        "bench.costs",
    ),
    Part(
        "cost_steps",
        "Predicted steps",
        "Predicted steps of the embeddings, compared with whole steps of MLPerf:\n"
        "[hardware-costs.md](hardware-costs.md).",
        "bench.cost_steps",
    ),
    Part(
        "profile",
        "Profiles of ids",
        "`fastplan profile` on 100 million ids, and its estimates compared with exact LRU caches\n"
        "and counted windows: [profile.md](profile.md).",
        "bench.profile",
    ),
    Part(
        "step_quality",
        "Plans by their step",
        "Plans optimized for the predicted step, compared with TorchRec's and with those\n"
        "optimized for the rating, on drawn instances: [hardware-costs.md](hardware-costs.md).",
        "bench.step_quality",
    ),
    Part(
        "stopwatch",
        "Plans by the stopwatch",
        "Steps of drawn models on emulated hosts with a slow network:\n"
        "[stopwatch.md](stopwatch.md).",
        "bench.stopwatch",
    ),
    Part(
        "offload",
        "Offload plans",
        "Bytes over host links in simulated caches of the planned sizes: [offload.md](offload.md).",
        "bench.offload",
    ),
    Part(
        "quality",
        "Better plans",
        "Ratings, and their distance from a proven bound: [optimize.md](optimize.md).",
        "bench.quality",
        ("--cpu",),
    ),
    Part(
        "quality_seeds",
        "Better plans, by seed",
        "The gap that a run of one second proves.",
        "bench.quality_seeds",
        ("--cpu",),
    ),
    Part(
        "quality_counts",
        "Better plans, counted",
        "Checks of optimized plans on random instances.",
        "bench.quality_counts",
    ),
    Part(
        "replan",
        "Re-planning",
        "Bytes moved and ratings when a model or a cluster changes: [replan.md](replan.md).",
        "bench.replan",
    ),
    Part(
        "moves",
        "Moves in a running job",
        "Times of `reshard` between two emulated hosts, and their estimates:\n"
        "[replan.md](replan.md).",
        "bench.moves",
    ),
    Part(
        "checkpoints",
        "Checkpoints between plans",
        "What TorchRec and fastplan load of each other plan's checkpoint, to the bit:\n"
        "[checkpoint.md](checkpoint.md).",
        "bench.checkpoints",
    ),
    Part(
        "checkpoint_convert",
        "Conversion of a large checkpoint",
        "Memory and time of `fastplan checkpoint convert`.",
        "bench.checkpoint_convert",
    ),
)
