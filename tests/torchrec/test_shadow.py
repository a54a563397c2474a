"""Plans compared with those of TorchRec's own planner, while the job goes on."""

import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.types import PlannerError

from fastplan import Optimize
from fastplan.planning.run import Run
from fastplan.torchrec.plan_facts import plan_facts
from fastplan.torchrec.planning import Planning
from fastplan.torchrec.shadow import inputs as shadow_inputs
from fastplan.torchrec.shadow import process, run
from fastplan.torchrec.shadow.inputs import pack, read_inputs
from tests.torchrec.collective_worker import ROWS, SHARDERS, model, planner, topology
from tests.torchrec.processes import has_ended, run_ranks

SECONDS = 900  # the process has the lowest priority, and the machine may be busy
RANKS = 2
# Types of equal cost: the first in the order of options wins.
TIED = ["table_wise", "column_wise", "table_column_wise"]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("FASTPLAN_SHADOW", "FASTPLAN_SHADOW_LOG", "RANK"):
        monkeypatch.delenv(name, raising=False)


def planned(module=None, **arguments):
    """The planner after a plan in shadow mode."""
    arguments = {"shadow": True, **arguments}
    used = planner(RANKS, **arguments)
    used.plan(model() if module is None else module, SHARDERS)
    return used


def verdict(used):
    found = used.last_run.shadow.wait(SECONDS)
    assert found is not None
    return found


def break_plans(monkeypatch):
    """Makes fastplan's planner return another plan than TorchRec's."""
    build = Planning._build

    def wrong(self, placement):
        plan = build(self, placement)
        plan.plan[""]["t1"].compute_kernel = "broken"
        return plan

    monkeypatch.setattr(Planning, "_build", wrong)


class InMain(nn.Module):
    """A model with weights on the CPU. Its class can't be imported by another process."""

    def __init__(self):
        super().__init__()
        self.tables = type(model())(
            device=torch.device("cpu"), tables=model().embedding_bag_configs()
        )
        self.dense = nn.Linear(300, 300)


InMain.__module__, InMain.__qualname__ = "__main__", "InMain"


def test_identical_plans_are_reported_while_the_job_goes_on(monkeypatch, tmp_path, caplog, capfd):
    log = tmp_path / "shadow.jsonl"
    monkeypatch.setenv("FASTPLAN_SHADOW", "1")
    monkeypatch.setenv("FASTPLAN_SHADOW_LOG", str(log))
    with caplog.at_level(logging.INFO, "fastplan.shadow"):
        used = planned(InMain(), shadow=None)
        assert used.last_run.engine == "native"
        assert used.last_run.shadow.outcome is None
        assert str(used.last_run.shadow) == "not compared yet: TorchRec still plans"
        found = verdict(used)
    assert (found.outcome, found.reason, found.tables) == ("identical", None, len(ROWS))
    assert set(found.seconds) == {"fastplan", "torchrec", "torchrec_cpu"}
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["outcome"], line["uses"], line["tables"]) == ("identical", "fastplan", len(ROWS))
    (record,) = [each for each in caplog.records if each.name == "fastplan.shadow"]
    assert (record.levelname, "identical plans" in record.getMessage()) == ("INFO", True)
    assert capfd.readouterr().out == ""


def tied_order(seed: int | None = None) -> str:
    """How a process lists the tied types; None is this process."""
    text = f"list(set({TIED!r}) & set({TIED!r}))"
    if seed is None:
        return str(eval(text))
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-S", "-c", f"print({text})"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_the_other_process_has_this_ones_order_of_options(monkeypatch):
    first = tied_order().split(",")[0]
    seed = next(seed for seed in range(1, 100) if tied_order(seed).split(",")[0] != first)
    monkeypatch.setitem(process._ENVIRONMENT, "PYTHONHASHSEED", str(seed))
    rules = {f"t{i}": ParameterConstraints(sharding_types=TIED) for i in range(len(ROWS))}
    assert verdict(planned(constraints=rules)).outcome == "identical"


def test_a_difference_names_table_field_and_both_values(monkeypatch, caplog):
    break_plans(monkeypatch)
    found = verdict(planned())
    assert found.outcome == "different"
    told = found.difference
    assert (told.table, told.field, told.fastplan, told.torchrec) == (
        "t1",
        "compute_kernel",
        "broken",
        "fused",
    )
    (record,) = [each for each in caplog.records if each.name == "fastplan.shadow"]
    assert record.levelname == "WARNING"
    assert "t1: compute_kernel is broken, TorchRec has fused" in record.getMessage()


def test_a_plan_that_is_edited_afterwards_is_compared_as_it_was_made(monkeypatch):
    seen = []
    monkeypatch.setattr(process, "start", lambda packed, ours, done: seen.append(ours))
    used = planner(RANKS, shadow=True)
    plan = used.plan(model(), SHARDERS)
    before = plan_facts(plan, used.last_run.rating)
    plan.plan[""]["t0"].ranks[0] = 7
    plan.plan[""]["t1"].sharding_type = "edited"
    assert seen == [before]


def answer_of(packed: bytes, ours: Any) -> dict[str, Any]:
    """What the other process would answer, in this one."""
    return run.plan_and_compare(pickle.loads(packed), ours)


@pytest.fixture
def here(monkeypatch):
    """The other process's part, done in this process at once."""
    monkeypatch.setattr(process, "start", lambda packed, ours, done: done(answer_of(packed, ours)))


def test_errors_are_compared_too(here):
    used = planner(RANKS, memory=1 << 20, shadow=True)
    with pytest.raises(PlannerError):
        used.plan(model(), SHARDERS)
    assert verdict(used).outcome == "identical"


def test_the_second_plan_of_a_planner_is_compared_too(here):
    used = planned()
    used.plan(model(), SHARDERS)
    assert verdict(used).outcome == "identical"


def test_a_deterministic_order_is_imposed_on_torchrec_too(here):
    rules = {f"t{i}": ParameterConstraints(sharding_types=TIED[::-1]) for i in range(len(ROWS))}
    assert verdict(planned(constraints=rules, deterministic=True)).outcome == "identical"


class FailsElsewhere(NoopPerfModel):
    """A perf model that needs what another process lacks."""

    def __getstate__(self):
        return {**self.__dict__, "elsewhere": True}

    def rate(self, plan):
        if hasattr(self, "elsewhere"):
            raise ConnectionError("no server")
        return super().rate(plan)


def test_a_part_that_fails_in_the_other_process_is_no_difference(here):
    found = verdict(planned(performance_model=FailsElsewhere(topology(RANKS))))
    assert found.outcome == "not compared"
    assert "fails in another process: ConnectionError: no server" in found.reason


class Locked(NoopPerfModel):
    def __init__(self, topology):
        super().__init__(topology)
        self.lock = threading.Lock()


def test_a_part_that_cannot_be_sent_is_named_and_the_plan_is_made():
    used = planned(performance_model=Locked(topology(RANKS)))
    found = verdict(used)
    assert found.outcome == "not compared"
    assert found.reason.startswith(
        "`perf_model` (Locked) can't be sent to another process: TypeError"
    )
    assert used._best_plan


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed (SIGKILL)"),
        ("raise SystemExit('no memory')", "ended with exit code 1: no memory"),
        ("print('no JSON')", "ended with exit code 0"),
    ],
)
def test_a_process_that_dies_is_no_difference(monkeypatch, script, reason):
    monkeypatch.setattr(process, "_SCRIPT", script)
    found = verdict(planned())
    assert found.outcome == "not compared"
    assert found.reason == f"the process of TorchRec's planner {reason}"


def test_no_process_can_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = verdict(planned())
    assert (found.outcome, "FileNotFoundError" in found.reason) == ("not compared", True)


def test_a_broken_comparison_never_reaches_the_job(monkeypatch):
    monkeypatch.setattr(run, "plan_facts", lambda *_: 1 / 0)
    for mode in (True, "torchrec"):
        assert verdict(planned(shadow=mode)).outcome == "not compared"
    monkeypatch.setattr(run, "read_inputs", lambda *_, **__: 1 / 0)
    for mode in (True, "torchrec"):
        assert verdict(planned(shadow=mode)).reason == "division by zero"


def test_a_log_that_cannot_be_written_is_a_warning(monkeypatch, tmp_path, caplog, here):
    monkeypatch.setenv("FASTPLAN_SHADOW_LOG", str(tmp_path / "none" / "log"))
    assert verdict(planned()).outcome == "identical"
    assert "FASTPLAN_SHADOW_LOG=" in caplog.text


def test_comparisons_wait_for_each_other_but_not_without_end(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def ask(_):
        begun.set()
        go_on.wait(SECONDS)
        return {"reason": "asked"}

    monkeypatch.setattr(process._Task, "_ask", ask)
    used = [planned() for _ in range(process._MOST_WAITING + 2)]
    assert begun.wait(SECONDS)
    assert verdict(used[-1]).reason == "8 other comparisons wait already"
    go_on.set()
    assert {verdict(each).reason for each in used[:-1]} == {"asked"}


@pytest.mark.parametrize("broken", [False, True])
def test_torchrecs_plan_is_used_until_trust_is_there(monkeypatch, broken):
    if broken:
        break_plans(monkeypatch)
    used = planner(RANKS, shadow="torchrec")
    plan = used.plan(model(), SHARDERS)
    assert plan.plan[""]["t1"].compute_kernel == "fused"
    assert used.last_run.engine == "torchrec"
    assert used.last_run.rating > 0
    found = used.last_run.shadow.verdict
    assert found.outcome == ("different" if broken else "identical")
    assert set(found.seconds) == {"fastplan", "torchrec"}
    again = used.plan(model(), SHARDERS)
    assert again == plan
    assert used.last_run.shadow.outcome == found.outcome


def test_torchrecs_errors_are_raised_and_compared():
    used = planner(RANKS, memory=1 << 20, shadow="torchrec")
    with pytest.raises(PlannerError):
        used.plan(model(), SHARDERS)
    assert verdict(used).outcome == "identical"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"optimize": Optimize(move_budget=100, time_budget=None)}, '`mode="optimize"`'),
        ({"replan": "auto", "cache": "memory:"}, "follows `previous`"),
        ({"costs": "hardware", "sku": "h100"}, "hardware costs"),
    ],
)
@pytest.mark.parametrize("mode", [True, "torchrec"])
def test_plans_that_are_not_torchrecs_are_not_compared(arguments, reason, mode):
    used = planned(shadow=mode, **arguments)
    assert reason in verdict(used).reason
    assert used.last_run.engine == "native"


def test_only_rank_zero_compares(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert verdict(planned()).reason == "only rank 0 compares, this is rank 3"


def test_ranks_of_a_group_compare_once(tmp_path):
    arguments = [("rank", rank, tmp_path) for rank in range(2)]
    first, second = run_ranks("tests.torchrec.shadow_worker", arguments)
    assert first == ["identical", None, None]
    assert second == [None, "not compared", "only rank 0 compares, this is rank 1"]


def job(case: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.torchrec.shadow_worker", case],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), **variables},
    )


def test_a_job_that_ends_first_ends_the_comparison(tmp_path):
    log = tmp_path / "log"
    with job("ends", FASTPLAN_SHADOW_LOG=str(log)) as process:
        output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert not psutil.pid_exists(int(output))  # reaped, too: the output has nothing else
    (line,) = map(json.loads, log.read_text().splitlines())
    assert line["reason"] == "the job ended before TorchRec's planner"


def test_a_job_that_is_killed_leaves_no_process_behind():
    with job("waits") as process:
        pid = int(process.stdout.readline())
        process.kill()
    assert has_ended(pid)


def test_a_forked_process_leaves_the_comparison_alone(monkeypatch):
    monkeypatch.setattr(process, "_tasks", process._Tasks())
    process._tasks.present.append(None)
    before = process._tasks
    process._forget()
    assert process._tasks is not before
    assert process._tasks.present == []


@pytest.mark.parametrize(
    ("value", "uses"), [("", None), ("0", None), ("1", "fastplan"), ("torchrec", "torchrec")]
)
def test_the_environment_selects_the_mode(monkeypatch, value, uses):
    monkeypatch.setenv("FASTPLAN_SHADOW", value)
    assert planner(RANKS)._fastplan.shadow == uses
    assert planner(RANKS, shadow=False)._fastplan.shadow is None


def test_wrong_modes(monkeypatch, caplog):
    with pytest.raises(ValueError, match="`shadow` must be True, False or \"torchrec\", not 'yes'"):
        planner(RANKS, shadow="yes")
    monkeypatch.setenv("FASTPLAN_SHADOW", "yes")
    assert planner(RANKS)._fastplan.shadow is None
    assert "FASTPLAN_SHADOW must be 1, torchrec or 0, not 'yes'" in caplog.text


def test_large_weights_are_not_sent_and_keep_what_planners_read():
    module = nn.Linear(1000, 1000)
    module.weight._optimizer_classes = [torch.optim.Adam]
    module.weight.hook = lambda: None
    used = planner(RANKS)
    packed = pack(read_inputs(used, module, SHARDERS, deterministic=False))
    assert len(packed) < 100_000
    copied = pickle.loads(packed).module
    assert (copied.weight.device.type, copied.weight.shape) == ("meta", (1000, 1000))
    assert isinstance(copied.weight, nn.Parameter)
    assert copied.weight._optimizer_classes == [torch.optim.Adam]
    assert not hasattr(copied.weight, "hook")
    assert torch.equal(copied.bias, module.bias)  # small ones have their values


def test_the_planner_itself_is_not_changed(here):
    used = planned()
    assert not isinstance(used._enumerator._filter_compute_kernels, shadow_inputs._Ordered)
    assert used._enumerator.last_stored_search_space


def test_a_run_with_a_shadow_can_be_pickled(here):
    report = pickle.loads(pickle.dumps(planned().last_run))
    assert report.shadow.wait(0).outcome == "identical"
    assert pickle.loads(pickle.dumps(Run())).shadow is None
