"""The table that is written from columns is the one that TorchRec writes from objects."""

import logging

import pytest
from torchrec.distributed.planner import shard_estimators
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PlannerError,
    Shard,
    ShardingOption,
    Storage,
)

from fastplan import EmbeddingShardingPlanner, shard_cost
from fastplan.torchrec.read.space import ChosenOptions
from fastplan.torchrec.write import stats_table
from tests.parity.custom import RecordingStats
from tests.parity.instances import FAMILIES, make_instance
from tests.parity.small import small, small_constraints, small_topology

ROUNDS = 3
INSTANCES = [make_instance(seed) for seed in range(ROUNDS * len(FAMILIES))]


@pytest.fixture(autouse=True)
def heard(caplog):
    with caplog.at_level(logging.INFO, logger=torchrec_stats.logger.name):
        yield caplog


@pytest.fixture
def written(monkeypatch):
    """The calls of the writer: its statistics, their width before, the plan and the arguments."""
    calls = []

    def write(stats, best_plan, arguments):
        calls.append((stats, stats._width, best_plan, arguments))
        return wrapped(stats, best_plan, arguments)

    wrapped = stats_table.write
    monkeypatch.setattr(stats_table, "write", write)
    return calls


@pytest.fixture
def events(monkeypatch):
    """What TorchRec's event logger is told."""
    told = []

    def log_event(cls, **event):
        told.append(event["metadata"])

    monkeypatch.setattr(torchrec_stats.EventLoggingHandler, "log_event", classmethod(log_event))
    return told


def planned(built, **more):
    kwargs = {**built.planner_kwargs, "stats": [EmbeddingStats()], **more}
    planner = EmbeddingShardingPlanner(**kwargs)
    planner.plan(built.module, built.sharders)
    return planner


def planned_if_feasible(built):
    try:
        return planned(built)
    except (PlannerError, RuntimeError):
        return None


def by_torchrec(call):
    """TorchRec's own statistics of a plan that the writer was called for."""
    _, width, best_plan, arguments = call
    theirs = EmbeddingStats()
    theirs._width = width
    theirs.log(**{**arguments, "best_plan": best_plan()})
    return theirs


def assert_torchrec_writes_the_same(call):
    ours, theirs = call[0], by_torchrec(call)
    assert ours._stats_table == theirs._stats_table
    assert vars(ours) == vars(theirs)


@pytest.mark.parametrize("instance", INSTANCES, ids=str)
def test_the_text_is_torchrecs(instance, written):
    built = instance.build()
    planner = planned_if_feasible(built)
    assert len(written) == 1 or planner is None or not built.stock
    for call in written:
        assert_torchrec_writes_the_same(call)


@pytest.mark.parametrize("instance", INSTANCES[: len(FAMILIES)], ids=str)
def test_event_loggers_get_what_torchrec_gives_them(instance, events, written):
    planned_if_feasible(instance.build())
    ours = events[-1:]
    for call in written:
        by_torchrec(call)
        assert events[-1:] == ours


def one_type(sharding_type, **fields):
    return {"constraints": small_constraints(sharding_types=[sharding_type], **fields)}


@shard_cost
def priced(shard, out):
    out.fwd_compute = 1e-4 * shard.rows
    out.fwd_comms = 0.0
    out.bwd_compute = 12.5
    out.bwd_comms = 0.25


CASES = {
    "defaults": {},
    "data parallel only": one_type("data_parallel"),
    "a rank without shards": {**one_type("table_wise"), "topology": small_topology(8)},
    "one rank": {"topology": small_topology(1)},
    "without details": {"debug": False},
    "many ranks": {**one_type("row_wise"), "topology": small_topology(12)},
    "batch sizes": one_type("column_wise", batch_sizes=[7], min_partition=16),
    "poolings": one_type("table_row_wise", num_poolings=[0.3], batch_sizes=[3]),
    "costs of a user": {**one_type("data_parallel"), "shard_cost": priced},
    "whole numbers": {
        "constraints": {
            f"table_{i}": ParameterConstraints(pooling_factors=[i], num_poolings=[2])
            for i in range(1, 4)
        }
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_torchrecs_for(name, written):
    planned(small(**CASES[name]))
    assert_torchrec_writes_the_same(*written)


def test_the_text_is_torchrecs_for_a_plan_from_a_cache(written, tmp_path):
    for status in ("miss", "hit"):
        planner = planned(small(), cache=tmp_path)
        assert planner.last_run.cache.status == status
        assert_torchrec_writes_the_same(written.pop())


def test_the_text_is_torchrecs_after_a_wider_table(written):
    stats = EmbeddingStats()
    stats._width = 500
    planned(small(), stats=[stats])
    assert_torchrec_writes_the_same(*written)
    assert {len(line) for line in stats._stats_table} >= {500}


def test_a_table_that_nobody_has_read_is_written_first(heard, written):
    stats, built = EmbeddingStats(), small()
    planner = EmbeddingShardingPlanner(**{**built.planner_kwargs, "stats": [stats]})
    with heard.at_level(logging.WARNING, logger=torchrec_stats.logger.name):
        planner.plan(built.module, built.sharders)
    planner.plan(built.module, built.sharders)
    assert stats._stats_table == by_torchrec(*written)._stats_table


def test_listeners_are_told_where_torchrec_logs(heard, written):
    planned(small())
    places = [[], []]
    for place in places:
        own = [each for each in heard.records if each.name == torchrec_stats.logger.name]
        place.extend((each.pathname, each.lineno, each.funcName) for each in own)
        heard.clear()
        by_torchrec(*written)
    assert places[0] == places[1] != []


def test_options_are_not_made_until_somebody_reads_them():
    planner = planned(small())
    assert isinstance(planner._fastplan.best_plan, ChosenOptions)
    assert [option.name for option in planner._best_plan]


def test_options_that_other_statistics_have_read_are_told_by_torchrec(written):
    planned(small(), stats=[RecordingStats(), EmbeddingStats()])
    assert not written


@pytest.mark.parametrize("ranks", [4, 16])
def test_no_object_is_made_for_each_shard(monkeypatch, ranks):
    tables = 20
    made = dict.fromkeys((Shard, ShardingOption, Perf, Storage), 0)

    def counted(kind, init):
        def count(self, *args, **kwargs):
            made[kind] += 1
            init(self, *args, **kwargs)

        return count

    def write(*args):
        with monkeypatch.context() as counting:
            for kind in made:
                counting.setattr(kind, "__init__", counted(kind, kind.__init__))
            wrapped(*args)

    wrapped = stats_table.write
    monkeypatch.setattr(stats_table, "write", write)
    rules = small_constraints(tables, sharding_types=["row_wise"])
    planner = planned(small(count=tables, constraints=rules, topology=small_topology(ranks)))
    assert sum(len(option.shards) for option in planner._best_plan) == tables * ranks
    assert made[Shard] == made[ShardingOption] == 0
    assert 0 < made[Perf] <= ranks
    # One for each table, and one to add it to those of its kernel; some for what is reserved.
    assert 0 < made[Storage] <= 2 * tables + 5


REPLACED = {
    "method": (EmbeddingStats, "_log_sharding_plan"),
    "function": (torchrec_stats, "_compute_mem_usage_and_perf"),
    "imported function": (torchrec_stats, "bytes_to_gb"),
    "formula": (shard_estimators, "_calculate_tw_shard_io_sizes"),
    "sum": (Perf, "__add__"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_function_that_somebody_has_replaced_is_called(name, monkeypatch, written):
    holder, function = REPLACED[name]
    stock, calls = getattr(holder, function), []

    def replacement(*args, **kwargs):
        calls.append(args)
        return stock(*args, **kwargs)

    monkeypatch.setattr(holder, function, replacement)
    planned(small(**one_type("table_wise")))
    assert calls
    assert not written


def test_a_property_that_somebody_has_replaced_is_read(monkeypatch, written):
    stock, calls = ShardingOption.total_storage, []

    def replacement(self):
        calls.append(self)
        return stock.fget(self)

    monkeypatch.setattr(ShardingOption, "total_storage", property(replacement))
    planned(small())
    assert calls
    assert not written


def test_a_method_that_somebody_has_put_on_the_object_is_called(written):
    stats, calls = EmbeddingStats(), []
    stats._log_imbalance_tables = calls.append
    planned(small(), stats=[stats])
    assert calls
    assert not written
