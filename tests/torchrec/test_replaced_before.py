"""Functions and constants that other code replaces before it imports fastplan."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from torchrec.distributed.planner import constants, perf_models, shard_estimators
from torchrec.distributed.planner.estimator import estimator
exec(sys.argv[1])
from tests.torchrec.variant_worker import compare
print(json.dumps(compare()))
"""
RATE = """
stock = perf_models.NoopPerfModel.rate
perf_models.NoopPerfModel.rate = lambda self, plan: -stock(self, plan)
"""
CONSTANT = "estimator.BATCHED_COPY_PERF_FACTOR = shard_estimators.UVM_CACHING_RATIO = 3.0"


def plan_after(change, cache):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, change],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("change", "engines", "reason"),
    [
        ("", ("native",), ""),
        (RATE, ("mixed",), "NoopPerfModel.rate was replaced by other code"),
        (CONSTANT, ("native", "mixed"), "self-check"),
    ],
    ids=["nothing", "a function", "a constant"],
)
def test_plan_is_torchrecs(change, engines, reason, tmp_path):
    found = plan_after(change, tmp_path)
    assert found["error"] == ""
    assert found["same"]
    assert found["engine"] in engines
    if change is not CONSTANT or found["engine"] == "native":
        assert reason in found["reason"]
