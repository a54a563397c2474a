"""Converting takes as little memory as chunks, however large tables are."""

import json
import subprocess
import sys

import torch
import torch.distributed.checkpoint as dcp

from tests.checkpoint.samples import KEY, write_plan
from tests.cli.command import ROOT, environment
from tests.torchrec.shardings import DIM, row_wise

MIB = 1 << 20
ROWS = 4 * MIB  # 128 MiB of weights, in one chunk
CONVERT = f"""
import json, sys
from pathlib import Path
import torch
from fastplan.checkpoint import convert, storage, writing
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
writing.CHUNK_BYTES, writing.FILE_BYTES, storage.BUFFER = {4 * MIB}, {8 * MIB}, {MIB}
Path("/proc/self/clear_refs").write_text("5")  # a peak of before the start is inherited
before = peak()
convert(*sys.argv[1:])
print(json.dumps(peak() - before))
"""


def test_memory_does_not_depend_on_the_size_of_tables(tmp_path):
    state = {"model": {KEY.format(0): torch.zeros(ROWS, DIM)}}
    dcp.save(state, checkpoint_id=tmp_path / "old", no_dist=True)
    plan = write_plan(tmp_path / "plan.json", {"t0": row_wise(ROWS, 0, 1, 2)})
    words = [str(tmp_path / "old"), str(plan), str(tmp_path / "new")]
    done = subprocess.run(
        [sys.executable, "-c", CONVERT, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    kib = json.loads(done.stdout.splitlines()[-1])
    assert kib < 48 * 1024
