"""TorchRec's statistics are written when they are heard, or read."""

import logging

import pytest
from torchrec.distributed.planner import stats as torchrec_stats
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner as TorchRecPlanner
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

from fastplan import EmbeddingShardingPlanner
from fastplan.torchrec import compat
from fastplan.torchrec.write.plan import LazyList
from tests.parity.instances import make_instance
from tests.parity.small import MIB, small, small_topology


def planned(planner_class, built=None):
    built = make_instance(0).build() if built is None else built
    planner = planner_class(**{**built.planner_kwargs, "stats": [EmbeddingStats()]})
    planner.plan(built.module, built.sharders)
    return planner


def table(planner):
    """The lines, but for those that tell how long it took and who planned."""
    lines = planner._stats[0]._stats_table
    return [line for line in lines if "ran for" not in line and "planner" not in line.lower()]


def test_the_table_is_torchrecs_and_costs_nothing_until_it_is_read():
    planner = planned(EmbeddingShardingPlanner)
    unread = planner._stats[0]._stats_table
    assert isinstance(unread, LazyList) and not unread.is_built
    assert table(planner) == table(planned(TorchRecPlanner))
    assert unread.is_built


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO])
def test_no_garbage_is_collected_for_torchrecs_own_statistics(monkeypatch, caplog, level):
    def resumed():
        raise AssertionError("nobody else's code runs")

    monkeypatch.setattr(compat, "resumed", resumed)
    with caplog.at_level(level, logger=torchrec_stats.logger.name):
        planned(EmbeddingShardingPlanner)


def test_an_old_table_is_of_the_old_plan():
    built = make_instance(0).build()
    planner = EmbeddingShardingPlanner(**{**built.planner_kwargs, "stats": [EmbeddingStats()]})
    planner.plan(built.module, built.sharders)
    old = planner._stats[0]._stats_table
    planner.plan(built.module, built.sharders)
    assert [line for line in old if "table_" in line]


def test_whoever_listens_hears_it(caplog):
    with caplog.at_level(logging.INFO, logger=torchrec_stats.logger.name):
        planner = planned(EmbeddingShardingPlanner)
    assert set(planner._stats[0]._stats_table) <= {*caplog.messages}
    assert not isinstance(planner._stats[0]._stats_table, LazyList)


def test_the_table_is_torchrecs_where_somebody_listens(caplog):
    with caplog.at_level(logging.INFO, logger=torchrec_stats.logger.name):
        assert table(planned(EmbeddingShardingPlanner)) == table(planned(TorchRecPlanner))


@pytest.mark.parametrize("hbm", [6, 12, 40])
@pytest.mark.parametrize("listens", [True, False])
def test_the_table_has_torchrecs_number_of_plans(caplog, hbm, listens):
    def cramped():
        return small(
            count=6,
            topology=small_topology(hbm=hbm * MIB, ddr_cap=64 * MIB),
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )

    level = logging.INFO if listens else logging.WARNING
    with caplog.at_level(level, logger=torchrec_stats.logger.name):
        lines = planned(EmbeddingShardingPlanner, cramped())._stats[0]._stats_table
    plans = planned(TorchRecPlanner, cramped())._num_plans
    assert plans
    assert sum(f"found {plans} possible plan(s)" in line for line in lines) == 1


@pytest.mark.parametrize("where", ["instance", "class", "events"])
def test_replaced_parts_are_called(monkeypatch, where):
    heard = []
    if where == "events":

        def log_event(cls, **event):
            heard.append(event["event_name"])

        monkeypatch.setattr(torchrec_stats.EventLoggingHandler, "log_event", classmethod(log_event))
    elif where == "class":
        monkeypatch.setattr(EmbeddingStats, "log", lambda self, **_: heard.append(self))
    built = make_instance(0).build()
    stats = EmbeddingStats()
    if where == "instance":
        stats.log = lambda **_: heard.append(stats)
    planner = EmbeddingShardingPlanner(**{**built.planner_kwargs, "stats": [stats]})
    planner.plan(built.module, built.sharders)
    assert heard
