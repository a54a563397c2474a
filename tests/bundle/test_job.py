"""A real job starts again from its bundle: same plan, same results, nothing planned or compiled."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fastplan.bundle import open_bundle
from tests.cli.command import ROOT, environment

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="the job has a TorchRec model"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++"),
]


def run(bundle, folder):
    """What the job told, on a host that has compiled nothing yet."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bundle.job", str(bundle)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env=environment(
            TORCHINDUCTOR_CACHE_DIR=str(folder),
            TORCHINDUCTOR_COMPILE_THREADS="1",
            OMP_NUM_THREADS="1",
        ),
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])


def libraries(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*.so")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    first = run(folder / "start.bundle", folder / "host-1")
    second = run(folder / "start.bundle", folder / "host-2")
    return folder, first, second


def test_the_first_start_plans_and_compiles_and_leaves_a_bundle(runs):
    folder, first, _ = runs
    assert first["loaded"] == [0, 0, 0]
    assert (first["cache"], first["hits"], first["misses"]) == ("miss", 0, 1)
    assert (first["saved"], first["notes"]) == (True, [])
    found = open_bundle(folder / "start.bundle")
    assert found.find_damage() == []
    assert len(found.header.plans) == 1
    assert set(found.header.artifacts[0].names) == {"inductor", "aot_autograd"}


def test_the_second_start_does_neither(runs):
    _, _, second = runs
    plans, artifacts, kernels = second["loaded"]
    assert (plans, artifacts) == (1, 2)
    assert kernels >= 1
    assert (second["cache"], second["hits"], second["misses"]) == ("hit", 1, 0)
    assert (second["saved"], second["notes"]) == (False, [])


def test_no_library_is_built_twice(runs):
    folder, _, _ = runs
    # Another build would not give the same bytes: they depend on the folder's name.
    assert libraries(folder / "host-2") == libraries(folder / "host-1")


def test_artifacts_that_torch_cannot_read_are_told(runs):
    told = "its compile artifacts are not from torch, or were changed"
    assert runs[1]["unreadable"] == told


def test_results_are_equal(runs):
    _, first, second = runs
    assert second["plan"] == first["plan"]
    assert second["result"] == first["result"]
