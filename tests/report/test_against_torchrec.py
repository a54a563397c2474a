"""The figures equal those of TorchRec's own options."""

import pytest

from fastplan.engine.layout import layout_of
from fastplan.model.plan import Basis, Plan
from fastplan.report.analysis import analyse
from fastplan.torchrec.planning import drafted
from fastplan.torchrec.read.cluster import read_cluster
from tests.parity.compare import quiet
from tests.parity.small import small, small_constraints
from tests.parity.subject import SELF_CHECK, FastPlanner

PARTS = {
    "fwd_compute": "fwd_compute",
    "bwd_compute": "bwd_compute",
    "fwd_comms": "fwd_comms",
    "bwd_comms": "bwd_comms",
    "prefetch": "prefetch_compute",
    "input_dist": "input_dist_comms",
}


@pytest.mark.skipif(SELF_CHECK, reason="compares TorchRec with itself")
@pytest.mark.parametrize("count", [1, 4, 12])
def test_costs_and_memory_by_rank_are_the_sums_over_torchrecs_shards(count, tmp_path):
    built = small(count=count, constraints=small_constraints(count))
    with quiet():
        planner = FastPlanner(**built.planner_kwargs, cache=tmp_path)
        planner.plan(built.module, built.sharders)
    cluster = read_cluster(planner._storage_reservation.last_reserved_topology)
    request = drafted(planner, built.module, built.sharders).request
    record = planner._fastplan.result.record
    basis = Basis(
        canonical=planner.last_run.cache.request, request=request, cluster=cluster, record=record
    )
    plan = Plan(name="small", layout=layout_of(request, cluster, record), basis=basis)
    analysis = analyse(plan)

    shards = [shard for option in planner._best_plan for shard in option.shards]
    for rank in range(analysis.ranks):
        own = [shard for shard in shards if shard.rank == rank]
        for part, field in PARTS.items():
            expected = sum(getattr(shard.perf, field) for shard in own)
            assert analysis.costs.parts[part][rank] == pytest.approx(expected, rel=1e-12)
        assert analysis.costs.total[rank] == pytest.approx(sum(s.perf.total for s in own))
        assert analysis.memory[0].used[rank] == sum(shard.storage.hbm for shard in own)
    assert analysis.costs.rating == planner.last_run.rating
