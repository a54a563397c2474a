"""Hooks into torch, TorchRec and fastplan's planner are installed and removed."""

import sys
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, save
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed import model_parallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology, enumerators, partitioners, planners

import fastplan
import fastplan.bundle
from fastplan import ett
from fastplan.ett.library_hooks import is_recompile
from fastplan.ett.reading import read_job
from fastplan.torchrec import planner as fastplan_planner
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.planning import Planning

SHARDERS = [EmbeddingBagCollectionSharder()]


@pytest.fixture
def recorded(tmp_path):
    """Installs hooks, and gives the record once they are uninstalled."""
    assert ett.install(tmp_path / "runs")

    def end():
        ett.uninstall()
        ett.stop()
        (record,), problems = read_job(tmp_path / "runs")
        assert not problems
        return record

    yield end
    ett.uninstall()
    ett.stop()
    ett.recording._directory = None


def watched():
    """Everything that hooks replace."""
    own = sys.modules[__name__]
    return [
        sys.excepthook,
        sys.meta_path[0],
        own.save,
        dist.init_process_group,
        dist.distributed_c10d.init_process_group,
        *(dcp.save, dcp.load, dcp.async_save, dcp.state_dict_saver.save),
        torch.optim.Optimizer.__init__,
        EmbeddingBagCollection.__init__,
        *(
            vars(model_parallel.DistributedModelParallel)[name]
            for name in ("__init__", "_init_dmp", "_init_optim", "init_data_parallel", "forward")
        ),
        planners.EmbeddingShardingPlanner.plan,
        planners.EmbeddingPlannerBase.collective_plan,
        planners.to_sharding_plan,
        fastplan_planner.EmbeddingShardingPlanner.plan,
        fastplan_planner.EmbeddingShardingPlanner.collective_plan,
        partitioners.GreedyPerfPartitioner.partition,
        enumerators.EmbeddingEnumerator.enumerate,
        *(vars(fastplan.bundle.Start)[name] for name in ("__init__", "save")),
        *(vars(fastplan.bundle.Bundle)[name] for name in ("copy_to_cache", "load_artifacts")),
        torch._dynamo.reset,
        *torch._dynamo.callback_handler.start_callbacks,
        *torch._dynamo.callback_handler.end_callbacks,
    ]


def names(record):
    """Phases but imports, which depend on what other tests have imported."""
    return [phase.name for phase in record.phases if phase.name != "imports"]


def model(tables=4):
    configs = [
        EmbeddingBagConfig(
            name=f"t{i}", embedding_dim=16, num_embeddings=100, feature_names=[f"f{i}"]
        )
        for i in range(tables)
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=configs)


def topology():
    return Topology(world_size=2, compute_device="cuda")


def test_everything_is_replaced_and_restored(tmp_path):
    before = watched()
    ett.install(tmp_path / "runs")
    during = watched()
    ett.install(tmp_path / "runs")  # changes nothing
    assert len(watched()) == len(during)
    ett.uninstall()
    after = watched()
    ett.uninstall()
    ett.recording._directory = None
    assert all(a is b for a, b in zip(before, after, strict=True))
    callbacks = 2
    assert len(during) == len(before) + callbacks
    unchanged = [a for a, b in zip(before, during, strict=False) if a is b]
    assert unchanged == []
    assert not (tmp_path / "runs").exists()  # nothing has happened


def test_torchrecs_planner_is_recorded_with_its_inside(recorded):
    planner = planners.EmbeddingShardingPlanner(topology=topology())
    planner.plan(model(), SHARDERS)
    plan = next(phase for phase in recorded().phases if phase.name == "plan")
    assert plan.more["engine"] == "torchrec"
    assert {"reserve", "enumerate", "search", "build", "stats"} == plan.more["parts"].keys()
    assert sum(plan.more["parts"].values()) < (plan.end - plan.begin) / 1e9


def test_fastplans_planner_is_recorded_and_stays_native(recorded):
    planner = fastplan.EmbeddingShardingPlanner(topology=topology())
    with_hooks = planner.plan(model(), SHARDERS)
    assert planner.last_run.engine == "native"
    record = recorded()
    assert names(record).count("plan") == 1
    plan = next(phase for phase in record.phases if phase.name == "plan")
    assert (plan.more["engine"], plan.more["cache"]) == ("native", "off")
    assert "search" in plan.more["parts"]
    without = fastplan.EmbeddingShardingPlanner(topology=topology()).plan(model(), SHARDERS)
    assert with_hooks == without


def test_a_planner_with_an_account_of_another_kind_plans_as_ever(recorded, caplog):
    planner = planners.EmbeddingShardingPlanner(topology=topology())
    planner.last_run = "yesterday"
    assert planner.plan(model(), SHARDERS).plan
    assert names(recorded()).count("plan") == 1
    assert "an event is not recorded" in caplog.text


def test_an_asynchronous_save_that_returns_something_else_returns_it(recorded, monkeypatch):
    saver = sys.modules["torch.distributed.checkpoint.state_dict_saver"]
    ett.uninstall()
    monkeypatch.setattr(saver, "async_save", lambda: "nothing to wait for")
    ett.install()
    ett.step(0)
    assert saver.async_save() == "nothing to wait for"
    assert "checkpoint_stage" in names(recorded())


def test_an_exception_without_text_is_a_failure_and_reaches_the_hook_before(recorded, capsys):
    class Odd(Exception):
        def __str__(self):
            raise ValueError("no text")

    sys.excepthook(Odd, Odd(), None)
    assert "Odd" in capsys.readouterr().err
    ((cause, _),) = recorded().failures
    assert cause.startswith("Odd: ")


def test_a_plan_that_falls_back_is_one_phase_with_torchrecs_inside(recorded, monkeypatch):
    def refuse(self):
        raise NotNative("for this test")

    monkeypatch.setattr(Planning, "plan", refuse)
    planner = fastplan.EmbeddingShardingPlanner(topology=topology())
    planner.plan(model(), SHARDERS)
    record = recorded()
    plan = next(phase for phase in record.phases if phase.name == "plan")
    assert plan.more["engine"] == planner.last_run.engine == "torchrec"
    assert {"enumerate", "search"} <= plan.more["parts"].keys()
    assert names(record).count("plan") == 1


def test_an_error_while_planning_ends_the_phase(recorded):
    small = Topology(world_size=2, compute_device="cuda", hbm_cap=1, ddr_cap=1)
    with pytest.raises(planners.PlannerError):
        fastplan.EmbeddingShardingPlanner(topology=small).plan(model(), SHARDERS)
    plan = next(phase for phase in recorded().phases if phase.name == "plan")
    assert plan.end is not None


def test_building_a_model_and_an_optimizer_are_recorded(recorded):
    model()
    torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    assert names(recorded()) == ["model_build", "optimizer"]


def test_compilations_and_recompilations_are_recorded_separately(recorded):
    torch._dynamo.reset()  # drops callbacks, and is survived
    compiled = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    assert names(recorded()) == ["compile", "recompile"]
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("compile_id", "again"),
    [
        ("0/0", False),
        ("3/0", False),
        ("0/1", True),
        ("!0/2/1", True),
        ("0/0_1", False),
        ("", False),
    ],
)
def test_which_compilations_are_recompilations(compile_id, again):
    assert is_recompile(compile_id) is again


def test_a_start_from_a_bundle_is_recorded_with_what_it_took(recorded, tmp_path):
    for _ in range(2):
        start = fastplan.bundle.start(tmp_path / "start.bundle")
        planner = fastplan.EmbeddingShardingPlanner(topology=topology(), cache=start.cache)
        planner.plan(model(), SHARDERS)
        start.save()
    record = recorded()
    once = ["bundle", "model_build", "plan", "bundle_save"]
    assert [name for name in names(record) if name in once] == 2 * once
    taken = [phase.more["plans"] for phase in record.phases if phase.name == "bundle"]
    assert taken == [0, 1]


def test_filling_a_cache_from_a_bundle_is_recorded(recorded, tmp_path):
    start = fastplan.bundle.start(tmp_path / "start.bundle")
    planner = fastplan.EmbeddingShardingPlanner(topology=topology(), cache=start.cache)
    planner.plan(model(), SHARDERS)
    start.save()
    fastplan.bundle.open_bundle(start.path).copy_to_cache(tmp_path / "plans")
    assert names(recorded()).count("bundle") == 2


def test_a_save_is_a_checkpoint_of_the_last_step(recorded, tmp_path):
    state = {"x": torch.ones(3)}
    save(state, checkpoint_id=tmp_path / "before")
    for number in range(5):
        ett.step(number)
    dcp.save(state, checkpoint_id=tmp_path / "saved")
    dcp.load(state, checkpoint_id=tmp_path / "saved")
    record = recorded()
    assert names(record) == ["checkpoint_save", "checkpoint_save", "restore"]
    assert [step for step, _ in record.checkpoints] == [4]


def test_a_save_that_fails_is_no_checkpoint(recorded, tmp_path):
    ett.step(1)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointException):
        dcp.save({"x": torch.ones(3)}, checkpoint_id=tmp_path / "file" / "saved")
    record = recorded()
    assert "checkpoint_save" in names(record)
    assert record.checkpoints == []


def test_an_asynchronous_save_is_a_checkpoint_of_the_step_it_began_at(recorded, tmp_path):
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        ett.step(7)
        future = dcp.async_save({"x": torch.ones(3)}, checkpoint_id=tmp_path / "saved")
        ett.step(8)
        future.result()
    finally:
        dist.destroy_process_group()
    record = recorded()
    assert names(record) == ["process_group", "checkpoint_stage", "checkpoint_upload"]
    assert [p.name for p in record.phases if p.background] == ["checkpoint_upload"]
    assert [step for step, _ in record.checkpoints] == [7]
    assert (record.rank, record.world) == (0, 1)


def test_a_user_save_in_a_thread_is_passed_through(recorded, tmp_path):
    ett.step(1)
    work = {"x": torch.ones(3)}
    thread = threading.Thread(target=lambda: dcp.save(work, checkpoint_id=tmp_path / "saved"))
    thread.start()
    thread.join()
    assert (tmp_path / "saved" / ".metadata").exists()
    assert recorded().checkpoints == []


def test_an_uncaught_exception_is_a_failure(recorded, capsys):
    sys.excepthook(ValueError, ValueError("out of luck"), None)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    record = recorded()
    assert [cause for cause, _ in record.failures] == ["ValueError: out of luck"]
    assert "out of luck" in capsys.readouterr().err


def test_wrappers_that_other_code_still_holds_record_nothing_after_uninstalling(tmp_path):
    ett.install(tmp_path / "runs")
    kept = dcp.save
    ett.uninstall()
    kept({"x": torch.ones(3)}, checkpoint_id=tmp_path / "saved")
    ett.recording._directory = None
    assert not (tmp_path / "runs").exists()


def test_off_means_off(monkeypatch):
    monkeypatch.delenv("FASTPLAN_ETT", raising=False)
    before = watched()
    assert ett.install() is False
    assert all(a is b for a, b in zip(before, watched(), strict=True))
