"""A start is the same with TorchRec's plan objects, with fastplan's, and with the start patched."""

from typing import Any

import pytest

from tests.torchrec.processes import run_ranks
from tests.torchrec.start_worker import ROWS, STEPS

# Backend, ranks that are started, ranks there are, ranks per host.
GROUPS = {
    "2 gloo ranks": ("gloo", (0, 1), 2, 2),
    "one of 8 ranks on 2 hosts": ("fake", (0,), 8, 4),
}


@pytest.fixture(scope="module", params=GROUPS.values(), ids=list(GROUPS))
def ranks(request: Any, tmp_path_factory: Any) -> list[dict[str, Any]]:
    """What every rank saw of every way to start."""
    backend, started, world, per_host = request.param
    folder = tmp_path_factory.mktemp("start")
    return run_ranks(
        "tests.torchrec.start_worker",
        [(backend, rank, world, per_host, folder) for rank in started],
        LOCAL_WORLD_SIZE=str(per_host),
    )


@pytest.mark.parametrize("way", ["fastplan", "patched"])
@pytest.mark.parametrize("part", ["params", "optimizer", "groups", "plan", "state", "losses"])
def test_it_is_the_start_with_torchrecs_own_plan(ranks, way, part):
    for results in ranks:
        assert results[way][part] == results["torchrec"][part]


def test_real_ranks_train_and_hold_every_table(ranks):
    for results in ranks:
        if results["torchrec"]["losses"] is None:
            continue
        assert len(set(results["torchrec"]["losses"])) == STEPS
        assert len(results["torchrec"]["state"]) == len(ROWS)
