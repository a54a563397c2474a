"""Fuzz target for recordings and for logs of other tools.

Whatever the bytes, importers return jobs whose figures make sense, and a recording that is read at
once is the same as one that is read line by line.
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from functools import cache
from pathlib import Path

from bench.fleet_jobs import Fleet, write_jobs
from fastplan.ett.clean import read_clean
from fastplan.ett.imports import import_file, recognise
from fastplan.ett.imports.launchers import add_launches, read_launches
from fastplan.ett.reading import RecordError, _read_lines
from tests.ett.fleet.samples import mlperf_run, row, text
from tests.fuzzing import TOKENS, Target, changed_bytes

_SACCT = b"JobID|Submit|Start\n12|2026-01-01T00:00:00|1767225600\n13|1|2\n"
_SLURM = {"jobs": [{"job_id": 12, "time": {"submission": 5, "start": {"number": 9}}}]}
_POD = {
    "kind": "Pod",
    "metadata": {"name": "a-0", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "status": {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}
        ],
        "containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:20Z"}}}],
    },
}
_EVENT = {
    "involvedObject": {"name": "a-0"},
    "reason": "Scheduled",
    "firstTimestamp": "2026-01-01T00:00:09Z",
}
_KINDS = (b"mllog", b"goodput", b"csv")
_TOKENS = [*TOKENS, b":::MLLOG {", b"\n", b'"e":"steps"', b'"t":1', b'"in":{"a":[1,2]}', b"|"]


@cache
def good() -> dict[str, bytes]:
    name = {"job_name": "a"}
    entries = [{**name, "job_start_time": 5.0}, {**name, "step_count": 0, "step_start_time": 9.0}]
    with tempfile.TemporaryDirectory() as folder:
        write_jobs(Path(folder), 0, 12, Fleet(ranks=1))  # one of them fails
        files = sorted(Path(folder).rglob("*.jsonl"))
        recordings = {f"recording{i}": path.read_bytes() for i, path in enumerate(files)}
    return {
        "mllog": text(mlperf_run()),
        "goodput": "\n".join(map(json.dumps, entries)).encode(),
        "csv": b"job,phase,begin,end,team\na,plan,1,2,x\na,training,2,9,x\n",
        "sacct": _SACCT,
        "sacct1": json.dumps(_SLURM).encode(),
        "sacct2": json.dumps({"items": [_POD, _EVENT]}).encode(),
        **recordings,
    }


def draw(dice: random.Random) -> bytes:
    kind = dice.choice(sorted(good()))
    data = changed_bytes(dice, good()[kind], _TOKENS)
    if dice.random() < 0.1:
        data = changed_bytes(dice, gzip.compress(data), [b"\x1f\x8b\x08"])
    return kind.rstrip("0123456789").encode() + b"\n" + data


def check(tried: bytes) -> None:
    kind, _, data = tried.partition(b"\n")
    if kind == b"recording":
        _check_recording(data)
    elif kind == b"sacct":
        try:
            launches = read_launches(data)
        except ValueError:
            return
        labels = {"slurm_job": next(iter(launches), "12")}
        (job,) = add_launches([row(labels=labels)], launches)
        assert 0 <= job.ett <= 1
        assert all(took >= 0 for took in job.phases.values())
    elif kind in _KINDS:
        assert recognise("x.csv", data) in (None, "mllog", "goodput", "csv")
        for job in import_file(kind.decode(), "x", data):
            assert job.seconds >= 0
            assert 0 <= job.ett <= 1
            assert all(took >= 0 for took in job.phases.values())


def _check_recording(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.ett.jsonl"
        path.write_bytes(data)
        found = read_clean(path, data)
        if found is None:
            return
        try:
            assert found == _read_lines(path)
        except RecordError as error:
            raise AssertionError(f"read at once, but not line by line: {error}") from error


TARGET = Target(draw=draw, check=check)
