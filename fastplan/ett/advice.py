"""What would shorten a job: advice about its longest phases, besides training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastplan.ett.arithmetic import Report
from fastplan.ett.interval import FailureModel, model_of_job
from fastplan.ett.phases import Kind, phase_name
from fastplan.report.units import format_percent, format_seconds

_MOST = 3
_LEAST_SHARE = 0.02  # of the job's time; the longest phase has advice at any share


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """Advice about phases that one thing shortens."""

    phases: tuple[str, ...]
    seconds: float
    share: float  # of the job's time
    text: str

    @property
    def title(self) -> str:
        """The phases and their time, such as `compile, recompile: 12.0 s (3.1 %)`."""
        names = ", ".join(phase_name(name).title for name in self.phases)
        return f"{names}: {format_seconds(self.seconds)} ({format_percent(self.share)})"


def advice(report: Report) -> list[Advice]:
    """Returns advice about the longest phases, the longest first.

    Args:
        report: The report on a job.

    Returns:
        At least one entry if anything but training took time. Phases that one thing shortens are
        one entry.
    """
    whole = report.seconds or 1.0
    found = []
    for names, text in _groups(report).items():
        own = tuple(name for name in names if report.phases.get(name))
        seconds = sum(report.phases[name] for name in own)
        if own:
            found.append(
                Advice(phases=own, seconds=seconds, share=seconds / whole, text=text(report))
            )
    found.sort(key=lambda each: -each.seconds)
    return [each for i, each in enumerate(found[:_MOST]) if i == 0 or each.share >= _LEAST_SHARE]


Text = Callable[[Report], str]


def _groups(report: Report) -> dict[tuple[str, ...], Text]:
    """Phases that one thing shortens. All others are groups of their own."""
    named = {name for names in _ADVICE for name in names}
    own = [
        name
        for name in report.phases
        if name not in named and phase_name(name).kind is not Kind.TRAIN
    ]
    return {**_ADVICE, **{(name,): _other for name in own}}


def _imports(report: Report) -> str:
    return (
        "start the job with `fastplan run -- ...` instead of torchrun: workers are forks of a "
        "process that has imported everything (docs/restart.md)"
    )


def _planning(report: Report) -> str:
    plans = [attempt.plan for attempt in report.attempts if attempt.plan is not None]
    if not plans or any(plan.engine in (None, "torchrec") for plan in plans):
        return (
            "plan with fastplan's planner, or `fastplan.patch()`, and give it a plan cache "
            "(docs/cache.md)"
        )
    if any(plan.cache == "hit" for plan in plans[1:] or plans):
        return (
            "restarts take the plan from the cache already; what is left is reading the model and "
            "sending the plan (docs/initialisation.md)"
        )
    return "give the planner a plan cache, or start from a bundle (docs/cache.md, docs/bundle.md)"


def _compiling(report: Report) -> str:
    parts = []
    if report.phases.get("recompile", 0.0) > report.phases.get("compile", 0.0):
        parts.append(
            "most of it is compiling again: name the inputs whose sizes change in "
            "TORCH_COMPILE_DYNAMIC_SOURCES, or mark them with torch._dynamo.mark_dynamic; "
            "TORCH_LOGS=recompiles shows them"
        )
    if "bundle" not in report.phases:
        parts.append("start from a bundle, which has the compiled code (docs/bundle.md)")
    elif not parts:
        parts.append(
            "with a start bundle only the first start compiles; restarts load the code, trace, and "
            "import torch.compile, which `fastplan run` shortens (docs/restart.md)"
        )
    return "; ".join(parts)


def _sharding(report: Report) -> str:
    return (
        "create DistributedModelParallel with `fastplan.patch(init=True)` (docs/initialisation.md)"
    )


def _saving(report: Report) -> str:
    asynchronous = "checkpoint_stage" in report.phases
    parts = [] if asynchronous else ["save with torch.distributed.checkpoint.async_save"]
    return "; ".join([*parts, _interval(report)])


def _interval(report: Report) -> str:
    """The best interval, if the job was recorded with a failure and a checkpoint."""
    found = model_of_job(report)
    if {"save", "between_failures", "interval"} <= found.keys():
        model = FailureModel(**found)
        now, best = format_seconds(model.interval or 0.0), format_seconds(model.best)
        return (
            f"save a checkpoint every {best} instead of every {now}, by this job's failures "
            "(`fastplan ett interval`)"
        )
    return "`fastplan ett interval` works out how often to save a checkpoint"


def _restore(report: Report) -> str:
    return (
        "put the checkpoint on a faster file system, or restore it from the memory of other hosts"
    )


def _outside(report: Report) -> str:
    return "this is the launcher's and the scheduler's time, before the first process of a start"


def _failing(report: Report) -> str:
    return (
        "ranks waited for a rank that had failed: a shorter `timeout` of init_process_group, or "
        "TORCH_NCCL_ASYNC_ERROR_HANDLING, ends that sooner"
    )


def _waiting(report: Report) -> str:
    return "ranks wait here for the slowest of them; shorten what it does before that"


def _data(report: Report) -> str:
    return "training waits for data: more workers, or more prefetching, in the data loader"


def _other(report: Report) -> str:
    return "the job's own code"


_ADVICE: dict[tuple[str, ...], Text] = {
    ("imports",): _imports,
    ("plan", "broadcast"): _planning,
    ("compile", "recompile"): _compiling,
    ("dmp", "shard", "fused_optimizer", "data_parallel"): _sharding,
    ("checkpoint_save", "checkpoint_stage"): _saving,
    ("lost",): _interval,
    ("restore",): _restore,
    ("launch", "down", "restart"): _outside,
    ("stalled",): _failing,
    ("process_group",): _waiting,
    ("data_wait",): _data,
}
