"""Planners with id statistics."""

import random

import pytest

from fastplan.planning.specs import plan_spec
from fastplan.spec.ids import write_statistics
from fastplan.spec.stock import VERSIONS
from fastplan.torchrec.export import export_spec
from fastplan.torchrec.planner import EmbeddingShardingPlanner
from fastplan.torchrec.support import support
from tests.ids import drawn_statistics
from tests.torchrec.test_hardware_costs import SHARDERS, model, planner, topology

pytestmark = pytest.mark.skipif(
    bool(support.decide().reasons), reason="the estimates are not native, so costs are TorchRec's"
)
STATISTICS = {f"t{i}": drawn_statistics(random.Random(i), 10 ** (3 + i % 4)) for i in range(4)}


def test_a_file_and_a_mapping_give_the_same_step(tmp_path):
    write_statistics(STATISTICS, tmp_path / "ids.json")
    steps = []
    for given in (STATISTICS, tmp_path / "ids.json", None):
        one = planner(statistics=given)
        one.plan(model(), SHARDERS)
        steps.append(one.last_run.step)
    assert steps[0] == steps[1]
    assert [each.statistics for each in steps] == [4, 4, 0]


@pytest.mark.skipif(
    support.torchrec_name() not in VERSIONS, reason="specs don't have the rules of this version"
)
def test_an_exported_spec_has_the_statistics_and_the_same_key():
    module, one = model(), planner(statistics=STATISTICS)
    one.plan(module, SHARDERS)
    result = plan_spec(export_spec(one, module, SHARDERS, name="m"))
    assert result.key.fingerprint == one._fastplan.result.key.fingerprint
    assert result.step == one.last_run.step


def test_statistics_of_an_unknown_table_are_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="'t_1', and the model has no such one; did you mean 't1'"):
        planner(statistics={"t_1": STATISTICS["t1"]}).plan(model(), SHARDERS)


def test_statistics_need_hardware_costs():
    with pytest.raises(ValueError, match='`statistics` is for `costs="hardware"`'):
        EmbeddingShardingPlanner(topology=topology(), statistics=STATISTICS)
    with pytest.raises(ValueError, match="must be a file, or an IdStatistics"):
        planner(statistics={"t1": 3})
