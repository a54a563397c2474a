"""A start is the same with TorchRec's plan objects, with fastplan's, and with the start patched."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.bridge.start_worker import ROWS, STEPS

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
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "OMP_NUM_THREADS": "1",
        "LOCAL_WORLD_SIZE": str(per_host),
    }
    command = [sys.executable, "-m", "tests.bridge.start_worker", backend]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(per_host), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in started
    ]
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        results.append(json.loads(output.splitlines()[-1]))
    return results


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
