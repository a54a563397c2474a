"""Plans with fastplan and TorchRec, and compares.

TorchRec plans for minutes. In a thread it would take the interpreter from the training loop half
of the time. A forked process would share memory that CUDA and RDMA have registered. So a new
process at the lowest priority gets the inputs through a pipe, compares, and sends one line back;
a thread of the job waits for that line.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch.distributed as dist
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.types import PlannerError
from torchrec.distributed.types import ShardingPlan

from fastplan.engine.solve import OutOfRange
from fastplan.model.log import escaped_logger
from fastplan.planning.run import Run
from fastplan.planning.shadow import (
    DIFFERENT,
    IDENTICAL,
    NOT_COMPARED,
    Difference,
    Shadow,
    Verdict,
)
from fastplan.torchrec import compat
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.fallback import plan_by_torchrec
from fastplan.torchrec.plan_facts import (
    PlanFacts,
    count_tables,
    error_facts,
    first_difference,
    plan_facts,
    raised,
)
from fastplan.torchrec.planning import Planning
from fastplan.torchrec.shadow import process
from fastplan.torchrec.shadow.inputs import Inputs, copied, impose_orders, pack, read_inputs
from fastplan.torchrec.state import state_of

logger = escaped_logger("fastplan.shadow")

Plan = Callable[[Any, Run, Any, list[Any]], ShardingPlan]


def plan_with_shadow(
    plan: Plan, planner: Any, run: Run, module: Any, sharders: list[Any]
) -> ShardingPlan:
    """Returns the plan of the planner that the mode uses, and compares it with the other's.

    Args:
        plan: Plans with fastplan, given the other arguments.
        planner: The planner.
        run: The report; its `shadow` gets the verdict.
        module: The module.
        sharders: The sharders.

    Raises:
        Exception: what `plan` or TorchRec's planner raises, and nothing else.
    """
    uses_torchrec = state_of(planner).shadow == "torchrec"
    run.shadow = shadow = Shadow("torchrec" if uses_torchrec else "fastplan")
    if reason := _why_not_compared(planner):
        _end(shadow, Verdict(outcome=NOT_COMPARED, reason=reason, seconds={}))
        return plan(planner, run, module, sharders)
    if uses_torchrec:
        return _use_torchrec(planner, run, module, sharders, shadow)
    packed = _packed(planner, run, module, sharders, shadow)
    result: Any = None
    begin = time.perf_counter()
    try:
        result = plan(planner, run, module, sharders)
        return result
    except Exception as error:
        result = error
        raise
    finally:
        seconds = time.perf_counter() - begin
        if packed is not None:
            _hand_over(planner, run, shadow, packed, result, seconds)


def plan_and_compare(inputs: Inputs, ours: PlanFacts) -> dict[str, Any]:
    """Returns what TorchRec's own planner does with the inputs, compared with fastplan's facts."""
    planner = inputs.planner()
    impose_orders(planner._enumerator, inputs.orders)
    planner._timeout_seconds = None  # a process behind all others would run into it
    wall, cpu = time.perf_counter(), time.process_time()
    theirs, problem = _facts_of_torchrec(planner, inputs.module, inputs.sharders)
    seconds = {"torchrec": time.perf_counter() - wall, "torchrec_cpu": time.process_time() - cpu}
    if raised(theirs) and not raised(ours) and not isinstance(problem, PlannerError):
        # fastplan called the same Python parts: in this process one of them lacks something.
        text = f"{type(problem).__name__}: {problem}"
        return {"reason": f"TorchRec's planner fails in another process: {text}"}
    return {**_compared(ours, theirs), "seconds": seconds}


def _compared(ours: PlanFacts, theirs: PlanFacts) -> dict[str, Any]:
    difference = first_difference(ours, theirs)
    told = None if difference is None else asdict(difference)
    return {"difference": told, "tables": count_tables(theirs)}


def _facts_of_torchrec(
    planner: Any, module: Any, sharders: list[Any]
) -> tuple[PlanFacts, Exception | None]:
    try:
        plan = TorchRecPlanner.plan(planner, module, sharders)
        return plan_facts(plan, _rating(planner)), None
    except Exception as error:
        return error_facts(error), error


def _rating(planner: Any) -> float | None:
    best = planner._best_plan
    return float(planner._perf_model.rate(plan=best)) if best else None


def _why_not_compared(planner: Any) -> str | None:
    state = state_of(planner)
    for_group, state.plans_for_group = state.plans_for_group, False
    if state.optimize is not None:
        return '`mode="optimize"` makes other plans than TorchRec'
    if state.previous.policy is not None:
        return "a plan that follows `previous` is not TorchRec's"
    if state.hardware is not None:
        return "a plan by hardware costs is not TorchRec's"
    rank = _rank()
    if rank != 0 and not for_group:
        return f"only rank 0 compares, this is rank {rank}"
    return None


def _rank() -> int:
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank())
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def _packed(
    planner: Any, run: Run, module: Any, sharders: list[Any], shadow: Shadow
) -> bytes | None:
    """Returns the inputs for another process; None after a verdict that says why there are none."""
    try:
        with run.phase("shadow"):
            deterministic = state_of(planner).deterministic
            return pack(read_inputs(planner, module, sharders, deterministic=deterministic))
    except Exception as error:
        _not_compared(shadow, error)
        return None


def _hand_over(
    planner: Any, run: Run, shadow: Shadow, packed: bytes, result: Any, seconds: float
) -> None:
    """Starts the comparison with the plan, or the error, of fastplan's planner."""
    times = {"fastplan": seconds}
    try:
        if result is None or run.engine == "torchrec":
            own = f"TorchRec's own code planned: {run.reason}"
            reason = "planning was interrupted" if result is None else own
            _end(shadow, Verdict(outcome=NOT_COMPARED, reason=reason, seconds=times))
            return
        with run.phase("shadow"):
            ours = _facts(run, result)
        run.finish()
        note = _note(planner)
        process.start(packed, ours, lambda answer: _end(shadow, _verdict(answer, times, note)))
    except Exception as error:
        _not_compared(shadow, error, times)


def _facts(run: Run, result: Any) -> PlanFacts:
    return error_facts(result) if isinstance(result, Exception) else plan_facts(result, run.rating)


def _note(planner: Any) -> str | None:
    """Returns what else may cause a difference between two processes."""
    notes = []
    if planner._timeout_seconds:
        notes.append("fastplan may have stopped at `timeout_seconds`, TorchRec ran to the end")
    stock = type(planner._enumerator).__module__.startswith("torchrec.")
    if not stock and os.environ.get("PYTHONHASHSEED", "random") == "random":
        notes.append(
            "each process orders the sets of a custom enumerator differently: set PYTHONHASHSEED"
        )
    return "; ".join(notes) or None


def _verdict(answer: dict[str, Any], seconds: dict[str, float], note: str | None) -> Verdict:
    seconds = {**seconds, **answer.get("seconds", {})}
    if "reason" in answer:
        return Verdict(outcome=NOT_COMPARED, reason=answer["reason"], seconds=seconds)
    told = answer["difference"]
    verdict = Verdict(outcome=IDENTICAL, tables=answer["tables"], seconds=seconds)
    if told is None:
        return verdict
    return replace(verdict, outcome=DIFFERENT, difference=Difference(**told), note=note)


def _use_torchrec(
    planner: Any, run: Run, module: Any, sharders: list[Any], shadow: Shadow
) -> ShardingPlan:
    """Returns TorchRec's plan, after fastplan has planned with a copy of the planner."""
    rehearsal = _rehearse(planner, module, sharders)
    result: Any = None
    begin = time.perf_counter()
    try:
        why = '`shadow="torchrec"` uses TorchRec\'s plan'
        result = plan_by_torchrec(planner, run, module, sharders, why)
        return result
    except Exception as error:
        result = error
        raise
    finally:
        seconds = time.perf_counter() - begin
        run.finish()
        _compare_rehearsal(shadow, rehearsal, run, result, seconds)


class _Rehearsal(NamedTuple):
    """What fastplan made of a copy of the planner, or why it made nothing."""

    facts: PlanFacts | None = None
    reason: str | None = None
    seconds: float = 0.0


def _rehearse(planner: Any, module: Any, sharders: list[Any]) -> _Rehearsal:
    run = Run()
    try:
        # TorchRec plans in this process, too: it has the same order of options.
        twin = copied(read_inputs(planner, module, sharders, deterministic=False)).planner()
    except Exception as error:
        return _Rehearsal(reason=str(error))
    try:
        with compat.paused():
            result: Any = Planning(twin, run, module, sharders).plan()
    except (NotNative, OutOfRange) as why:
        return _Rehearsal(reason=f"fastplan, too, would let TorchRec's own code plan: {why}")
    except Exception as error:
        result = error
    run.finish()
    try:
        return _Rehearsal(_facts(run, result), seconds=run.seconds["total"])
    except Exception as error:
        return _Rehearsal(reason=f"fastplan's plan can't be read: {error}")


def _compare_rehearsal(
    shadow: Shadow, rehearsal: _Rehearsal, run: Run, result: Any, seconds: float
) -> None:
    times = {"fastplan": rehearsal.seconds, "torchrec": seconds}
    try:
        if rehearsal.facts is None or result is None:
            reason = rehearsal.reason or "planning was interrupted"
            verdict = Verdict(outcome=NOT_COMPARED, reason=reason, seconds=times)
        else:
            verdict = _verdict(_compared(rehearsal.facts, _facts(run, result)), times, None)
        _end(shadow, verdict)
    except Exception as error:
        _not_compared(shadow, error, times)


def _not_compared(
    shadow: Shadow, error: Exception, seconds: dict[str, float] | None = None
) -> None:
    _end(shadow, Verdict(outcome=NOT_COMPARED, reason=str(error), seconds=seconds or {}))


def _end(shadow: Shadow, verdict: Verdict) -> None:
    shadow.end(verdict, _report)


def _report(shadow: Shadow) -> None:
    """Logs a verdict: different plans as a warning, everything else as information.

    It also appends the verdict to the file FASTPLAN_SHADOW_LOG.
    """
    level = logging.WARNING if shadow.outcome == DIFFERENT else logging.INFO
    logger.log(level, "fastplan: shadow: %s", shadow)
    path = os.environ.get("FASTPLAN_SHADOW_LOG")
    if not path:
        return
    line = json.dumps({"time": time.time(), "pid": os.getpid(), **shadow.to_dict()}) + "\n"
    try:
        # One write in append mode: lines of several processes don't mix.
        with open(path, "ab", buffering=0) as file:
            file.write(line.encode())
    except (OSError, ValueError) as error:
        logger.warning("fastplan: shadow: FASTPLAN_SHADOW_LOG=%s: %s", path, error)
