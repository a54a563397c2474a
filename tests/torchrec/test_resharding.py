"""What a move of tables leaves as it was, and what it refuses, on a group of one rank."""

import copy
import os
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.optim.lr_scheduler import LambdaLR
from torchrec.distributed import TrainPipelineSparseDist
from torchrec.distributed.types import ParameterSharding
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

from fastplan import ReshardError, reshard
from fastplan.torchrec.live.checks import changed_tables
from fastplan.torchrec.table_state import read_tables
from tests.torchrec import small_job
from tests.torchrec.shardings import column_wise, plan_of, row_wise, table_wise

T0, T1, T2, T3 = small_job.ROWS
TABLES = {f"t{i}": table_wise(rows, 0) for i, rows in enumerate(small_job.ROWS)}
EPS = 1e-8  # what fused kernels have if none is given
COPIES = ParameterSharding("data_parallel", "dense", [0], None)


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("group") / "store"), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "LOCAL_WORLD_SIZE", "1")
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def job_of(path="tables", made=small_job.model, **tables):
    return small_job.wrapped(plan_of({**TABLES, **tables}, path), made)


def plan(path="tables", **tables):
    return plan_of({**TABLES, **tables}, path)


def weights(job):
    return {
        key: [shard.tensor.clone() for shard in table.weight.shards]
        for key, table in read_tables(job).items()
    }


def dense_optimizer(job, kind=torch.optim.Adagrad, **settings):
    """The optimizer of all that has no fused kernel, by default with the settings of those."""
    given = {"lr": 0.1, **({"eps": EPS} if kind is torch.optim.Adagrad else {}), **settings}
    return KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(job.named_parameters())), lambda p: kind(p, **given)
    )


def test_modules_optimizers_and_hooks_of_the_job_stay():
    job = job_of()
    small_job.train(job, range(2))
    module, inner = job.module.tables, job.module.tables.fused_optimizer
    seen = []
    module.register_forward_hook(lambda *_: seen.append(1))
    fused = job.fused_optimizer
    kernel = weakref.ref(module._lookups[0])
    found = reshard(job, plan(t0=column_wise(T0, 0, 0)))
    assert kernel() is None  # the memory of the old tables is free
    assert (found.moved, found.bytes, found.needs_restart) == (("tables.t0",), 0, {})
    assert (job.module.tables, module.fused_optimizer, job.fused_optimizer) == (
        module,
        inner,
        fused,
    )
    small_job.train(job, range(2, 3))
    assert seen == [1]
    assert len(module._state_dict_hooks) == 1
    assert changed_tables(job.plan, plan(t0=column_wise(T0, 0, 0))) == {}


def test_learning_rates_and_schedules_go_on():
    job = job_of()
    small_job.train(job, range(1))
    schedule = LambdaLR(job.fused_optimizer, lambda step: 0.5**step)
    schedule.step()
    job.fused_optimizer.step()
    reshard(job, plan(**{f"t{i}": row_wise(n, 0) for i, n in enumerate(small_job.ROWS)}))
    [group] = job.fused_optimizer.param_groups
    assert (group["lr"], group["initial_lr"]) == pytest.approx((0.05, 0.1))
    [kernel] = job.module.tables._lookups[0]._emb_modules
    assert kernel.emb_module.get_learning_rate() == pytest.approx(0.05)
    schedule.step()
    job.fused_optimizer.step()
    assert kernel.emb_module.get_learning_rate() == pytest.approx(0.025)


def test_wrapped_optimizers_see_the_new_tables():
    job = job_of(t3=COPIES)
    dense = dense_optimizer(job)
    stages = [WarmupStage(WarmupPolicy.LINEAR, max_iters=10, value=0.1)]
    warm = WarmupOptimizer(CombinedOptimizer([job.fused_optimizer, dense]), stages, lr=0.4)
    small_job.train(job, range(2))
    warm.step()
    reshard(job, plan(t0=column_wise(T0, 0, 0), t1=COPIES), optimizer=warm)
    assert warm.param_groups[0]["lr"] == pytest.approx(0.4 * 0.19)
    warm.step()
    rates = {group["lr"] for group in (*job.fused_optimizer.param_groups, *dense.param_groups)}
    assert len(rates) == 1
    assert rates == {group["lr"] for group in warm.param_groups}
    assert rates.pop() == pytest.approx(0.4 * 0.28)  # of the warm-up's second step
    assert "__warmup" in warm.params
    assert {*dense.params} == {"scale", "tables.embedding_bags.t1.weight"}
    assert len(job.fused_optimizer.param_groups) == 2


def test_states_go_to_the_optimizer_of_dense_kernels_and_back():
    job = job_of()
    dense = dense_optimizer(job)
    small_job.train(job, range(3))
    key = "tables.embedding_bags.t2.weight"
    before = read_tables(job, dense)[key].states["sum"].shards[0].tensor.clone()
    assert before.abs().sum() > 0
    reshard(job, plan(t2=COPIES), optimizer=dense)
    assert torch.equal(dense.state[dense.params[key]]["sum"], before)
    reshard(job, plan(t2=row_wise(T2, 0)), optimizer=dense)
    assert key not in dense.params
    assert len(dense.state) == 1
    assert torch.equal(read_tables(job)[key].states["sum"].shards[0].tensor, before)


@pytest.mark.parametrize("made", ["no dense weights", "only tables"])
def test_models_without_dense_weights_move_too(made):
    def build():
        model = small_job.model()
        if made == "only tables":
            return model.tables
        del model.scale
        model.forward = lambda features: model.tables(features).values()
        return model

    path = "" if made == "only tables" else "tables"
    job = job_of(path, build)
    before = weights(job)
    assert reshard(job, plan(path, t0=row_wise(T0, 0))).needs_restart == {}
    for key, shards in weights(job).items():
        assert torch.equal(torch.cat(shards), torch.cat(before[key]))


class WithLoss(small_job.Model):
    """The model in the form that a train pipeline wants."""

    def forward(self, features):
        out = super().forward(features)
        return (out * out).sum(), out


def with_loss():
    made = small_job.model()
    made.__class__ = WithLoss
    return made


def test_a_new_train_pipeline_goes_on():
    job, still = job_of(made=with_loss), job_of(made=with_loss)

    for steps in (range(3), range(3, 6)):
        losses = []
        for each in (job, still):
            losses.append(run_pipeline(each, steps))
        assert len(losses[0]) == len(steps)
        assert all(torch.equal(a, b) for a, b in zip(*losses, strict=True))
        reshard(job, plan(t0=column_wise(T0, 0, 0), t1=row_wise(T1, 0)))


def run_pipeline(job, steps):
    optimizer = torch.optim.SGD([job.module.scale], lr=0.0)
    pipeline = TrainPipelineSparseDist(job, optimizer, torch.device("cpu"))
    batches = iter([small_job.batch(step) for step in steps])
    outputs = []
    while True:
        try:
            outputs.append(pipeline.progress(batches))
        except StopIteration:
            return outputs


@pytest.mark.parametrize(
    ("tables", "table", "why"),
    [
        ({"t1": COPIES}, "tables.t1", "t1 has a dense kernel: pass its optimizer as `optimizer=`"),
        ({"new": table_wise(9, 0)}, "tables.new", "the table was added"),
        ({"t0": table_wise(T0, 3)}, "tables.t0", "the plan has rank 3; the job has 1 ranks"),
        ({"t0": table_wise(T0 + 1, 0)}, "tables.t0", "not those of a table of 40 x 8"),
        (
            {"t0": ParameterSharding("table_wise", "key_value", [0], TABLES["t0"].sharding_spec)},
            "tables.t0",
            "kernel key_value of t0 does not hold its weights as tensors",
        ),
    ],
)
def test_what_can_not_move_is_named_and_nothing_moves(tables, table, why):
    job = job_of()
    before = weights(job)
    found = reshard(job, plan(t3=row_wise(T3, 0), **tables))
    assert why in found.needs_restart[table]
    assert (found.moved, found.bytes) == ((), 0)
    assert changed_tables(job.plan, plan()) == {}
    assert str(weights(job)) == str(before)


def test_a_table_that_the_plan_lacks_needs_a_restart():
    after = plan()
    del after.plan["tables"]["t2"]
    assert reshard(job_of(), after).needs_restart == {"tables.t2": "the table was removed"}


def test_states_without_a_place_are_refused_by_name():
    job = job_of()
    small_job.train(job, range(1))
    found = reshard(job, plan(t1=COPIES), optimizer=dense_optimizer(job, torch.optim.SGD))
    assert "`sum` has no place in a SGD" in found.needs_restart["tables.t1"]
    assert changed_tables(job.plan, plan()) == {}


def test_row_wise_states_of_different_column_shards_merge_only_on_request():
    def rowwise():
        return small_job.model(optimizer=RowWiseAdagrad)

    job = job_of(made=rowwise, t0=column_wise(T0, 0, 0))
    small_job.train(job, range(2))
    key = "tables.embedding_bags.t0.weight"
    left, right = (shard.tensor.clone() for shard in read_tables(job)[key].states["sum"].shards)
    assert not torch.equal(left, right)
    with pytest.raises(ReshardError, match=rf"{key}: its state sum .* pass merge='mean'"):
        reshard(job, plan())
    assert changed_tables(job.plan, plan(t0=column_wise(T0, 0, 0))) == {}
    reshard(job, plan(), merge="mean")
    [shard] = read_tables(job)[key].states["sum"].shards
    assert torch.equal(shard.tensor, ((left.double() + right.double()) / 2).float())
    reshard(job, plan(t0=column_wise(T0, 0, 0)))  # each part keeps the numbers of its rows
    for part in read_tables(job)[key].states["sum"].shards:
        assert torch.equal(part.tensor, shard.tensor)


def test_tables_with_different_learning_rates_do_not_share_a_kernel():
    job = job_of(t1=column_wise(T1, 0, 0))
    for group, lr in zip(job.fused_optimizer.param_groups, (0.1, 0.2), strict=True):
        group["lr"] = lr
    job.fused_optimizer.step()
    [(table, why)] = reshard(job, plan()).needs_restart.items()
    assert table == "tables.t1"
    assert "tables.t0 and tables.t1 would share a kernel" in why
    assert changed_tables(job.plan, plan(t1=column_wise(T1, 0, 0))) == {}


@pytest.mark.parametrize("after", [row_wise(T0, 0), TABLES["t0"]])
def test_an_optimizer_that_lacks_a_table_of_a_changed_module_is_refused(after):
    job = job_of(t0=COPIES, t1=COPIES)
    owned = torch.optim.Adagrad([job.module.scale], lr=0.1, eps=EPS)
    changed = plan(t0=after, t1=COPIES)
    refused = reshard(job, changed, optimizer=owned)
    assert {*refused.needs_restart} == {"tables.t0", "tables.t1"}  # t1 would be built again too
    assert "`optimizer=` does not have table tables.t1" in refused.needs_restart["tables.t1"]
    assert changed_tables(job.plan, plan(t0=COPIES, t1=COPIES)) == {}
    assert reshard(job, changed, optimizer=dense_optimizer(job)).moved == ("tables.t0",)


def test_a_frozen_table_needs_no_optimizer():
    job = job_of(t1=COPIES)
    job.module.tables.embedding_bags["t1"].weight._original_tensor.requires_grad_(False)
    owned = torch.optim.Adagrad([job.module.scale], lr=0.1, eps=EPS)
    found = reshard(job, plan(t0=row_wise(T0, 0), t1=COPIES), optimizer=owned)
    assert found.moved == ("tables.t0",)


@pytest.mark.parametrize(
    ("name", "value", "fused"),
    [("lr", 0.5, 0.1), ("eps", 0.5, EPS), ("weight_decay", 0.3, 0.0), ("lr_decay", 0.2, 0.0)],
)
def test_a_table_joins_a_dense_optimizer_only_with_its_settings(name, value, fused):
    job = job_of()
    other = dense_optimizer(job, **{name: value})
    why = reshard(job, plan(t1=COPIES), optimizer=other).needs_restart["tables.t1"]
    told = f"it has {name} = {fused:g} in its fused kernel, and would have {name} = {value}"
    assert told in why
    # A group with its settings is taken, wherever it is.
    inner = other._optimizer
    group = {"params": [], "lr": 0.1, "eps": EPS, "weight_decay": 0.0, "lr_decay": 0.0}
    inner.add_param_group(group)
    assert reshard(job, plan(t1=COPIES), optimizer=other).moved == ("tables.t1",)
    weight = job.module.tables.embedding_bags["t1"].weight
    assert [[each is weight for each in g["params"]] for g in inner.param_groups] == [
        [False],
        [True],
    ]


@pytest.mark.parametrize(("name", "value"), [("lr", 0.5), ("eps", 0.5)])
def test_a_table_does_not_join_a_fused_kernel_with_other_settings(name, value):
    job = job_of(t1=COPIES)
    dense = dense_optimizer(job, **{name: value})
    small_job.train(job, range(1))
    dense.step()
    before = {"lr": 0.1, "eps": EPS}[name]
    why = reshard(job, plan(), optimizer=dense).needs_restart["tables.t1"]
    told = f"{name} = {value} in `optimizer`, and would have {name} = {before:g} in its fused"
    assert f"it has {told} kernel, shared with tables.t0" in why
    assert changed_tables(job.plan, plan(t1=COPIES)) == {}


def test_tables_with_different_dense_settings_do_not_become_one_fused_kernel():
    job = job_of(**dict.fromkeys(TABLES, COPIES))
    weights_of = [each.weight for each in job.module.tables.embedding_bags.values()]
    groups = [{"params": [each], "lr": 0.1 * (1 + i // 3)} for i, each in enumerate(weights_of)]
    dense = torch.optim.Adagrad(groups, eps=EPS)
    why = reshard(job, plan(), optimizer=dense).needs_restart
    assert {*why} == {"tables.t3"}
    assert "lr = 0.2 in `optimizer`, and would have lr = 0.1 " in why["tables.t3"]


def test_a_fused_kernel_of_its_own_gets_the_settings_of_the_dense_optimizer():
    job = job_of(**dict.fromkeys(TABLES, COPIES))
    dense = dense_optimizer(job, lr=0.5, eps=0.25)
    assert reshard(job, plan(), optimizer=dense).needs_restart == {}
    [kernel] = job.module.tables._lookups[0]._emb_modules
    assert kernel.emb_module.get_learning_rate() == 0.5
    assert kernel.emb_module.optimizer_args.eps == 0.25
    assert [group["lr"] for group in job.fused_optimizer.param_groups] == [0.5]


def test_tables_share_a_kernel_again_after_all_ways():
    job = job_of(t1=COPIES)
    dense = dense_optimizer(job)
    apart = plan(t1=column_wise(T1, 0, 0))
    for after in (apart, plan(), plan(t1=COPIES), plan()):
        assert reshard(job, after, optimizer=dense).moved == ("tables.t1",)


def test_a_setting_that_a_fused_kernel_has_not_is_refused():
    job = job_of(t1=COPIES)
    dense = dense_optimizer(job, weight_decay=0.3)
    after = plan(t1=column_wise(T1, 0, 0))  # a kernel of its own
    why = reshard(job, after, optimizer=dense).needs_restart["tables.t1"]
    assert "and would have weight_decay = 0 in its fused kernel;" in why


@pytest.mark.parametrize(
    ("kind", "settings", "state"),
    [(torch.optim.Adagrad, {}, "sum"), (torch.optim.SGD, {"momentum": 0.9}, "momentum_buffer")],
)
def test_states_do_not_begin_anew_in_another_kind_of_optimizer(kind, settings, state):
    def plain():
        return small_job.model(optimizer=torch.optim.SGD)

    job = job_of(made=plain)
    dense = dense_optimizer(job, kind, **settings)
    why = reshard(job, plan(t1=COPIES), optimizer=dense).needs_restart["tables.t1"]
    assert f"its fused kernel has no state `{state}`" in why
    back = job_of(made=plain, t1=COPIES)
    dense = dense_optimizer(back, kind, **settings)  # has made no step
    why = reshard(back, plan(), optimizer=dense).needs_restart["tables.t1"]
    assert f"state `{state}`" in why


def test_plain_sgd_moves_both_ways():
    job = job_of(made=lambda: small_job.model(optimizer=torch.optim.SGD))
    dense = dense_optimizer(job, torch.optim.SGD)
    assert reshard(job, plan(t1=COPIES), optimizer=dense).moved == ("tables.t1",)
    assert reshard(job, plan(), optimizer=dense).moved == ("tables.t1",)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("merge", "max", ValueError),
        ("round_bytes", 0, ValueError),
        ("round_bytes", True, TypeError),
        ("round_bytes", 1000.0, TypeError),
        ("optimizer", "adam", TypeError),
        ("progress", 3, TypeError),
        ("after", None, TypeError),
    ],
)
def test_arguments_are_checked(name, value, error):
    with pytest.raises(error, match=f"`{name}` must be"):
        reshard(job_of(), **{"after": plan(), name: value})


def test_a_plan_is_not_changed_nor_kept():
    job, after = job_of(), plan(t0=column_wise(T0, 0, 0))
    told = copy.deepcopy(str(after))
    reshard(job, after)
    assert str(after) == told
    assert job.plan.plan["tables"] is not after.plan["tables"]
