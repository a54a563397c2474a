"""The time before Python starts: Slurm, Kubernetes and torchrun."""

import json
import os
import time

import pytest

from fastplan.ett.imports.launchers import Launch, add_launches, read_launches
from fastplan.ett.journal import LAUNCHED, identify
from fastplan.ett.labels import job_labels
from tests.ett.fleet.samples import row
from tests.interpreter import python

T = 1_767_225_600.0


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "TORCHELASTIC_", "FASTPLAN_", "KUBERNETES_")):
            monkeypatch.delenv(name)


def test_queueing_and_the_container_come_before_the_launch():
    launch = Launch(T - 100, T - 40, T - 10)
    assert list(launch.pieces(T)) == [("queue", 60.0), ("container", 30.0), ("launch", 10.0)]
    # Only what lies before the job's own begin counts.
    assert list(launch.pieces(T - 60)) == [("queue", 40.0)]
    assert list(Launch(T - 100, None, None).pieces(T)) == []


def test_a_job_gets_the_time_before_its_begin():
    job = row(begin=T, labels={"slurm_job": "123"}, start={"plan": 60.0, "launch": 5.0})
    (found,) = add_launches([job], {"123": Launch(T - 100, T - 40)})
    assert found.start == {"queue": 60.0, "launch": 45.0, "plan": 60.0}
    assert (found.time_to_start_s, found.seconds) == (200.0, 1100.0)
    assert found.ett == 800.0 / 1100.0
    assert found.begin == T - 100
    assert sum(found.phases.values()) == found.seconds
    assert add_launches([job], {"124": Launch(T - 100, T - 40)}) == [job]


def test_sacct_is_read_as_a_table_and_as_json():
    table = (
        "JobID|JobName|Submit|Start|State\n"
        f"123|train|{T - 100:.0f}|{T - 40:.0f}|COMPLETED\n"
        f"123.batch|batch|{T:.0f}|{T:.0f}|COMPLETED\n"
        "124|train|2026-01-01T00:00:00+00:00|Unknown|PENDING\n"
    )
    found = read_launches(table.encode())
    assert found == {"123": Launch(T - 100, T - 40), "124": Launch(T, None)}
    times = {"submission": int(T - 100), "start": {"set": True, "number": int(T - 40)}}
    document = {"jobs": [{"job_id": 123, "time": times}, {"job_id": "x"}, 5]}
    assert read_launches(json.dumps(document).encode()) == {"123": Launch(T - 100, T - 40)}


def test_kubernetes_events_and_pods_are_read():
    def event(reason, at, pod="trainer-0"):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T + at))
        return {"involvedObject": {"name": pod}, "reason": reason, "firstTimestamp": stamp}

    events = [event("FailedScheduling", -100), event("Scheduled", -40), event("Pulling", -39)]
    events += [event("Started", -10), {"reason": 5}, None]
    found = read_launches(json.dumps({"items": events}).encode())
    assert found == {"trainer-0": Launch(T - 100, T - 40, T - 10)}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "trainer-0", "creationTimestamp": "2025-12-31T23:58:20Z"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": "2025-12-31T23:59:20Z",
                }
            ],
            "containerStatuses": [{"state": {"running": {"startedAt": "2025-12-31T23:59:50Z"}}}],
        },
    }
    assert read_launches(json.dumps({"items": [pod]}).encode()) == found


def test_lines_of_any_length_and_ending_are_no_matter():
    header, row = "JobID|Submit|Start", "12|1767225600|1767225660"
    for data in (
        f"{header}\r{row}\r",
        f"{header}\r\n{'x' * 200_000}|\r\n{row}\r\n",
        f"{header}\n{row}",
    ):
        assert read_launches(data.encode())["12"] == Launch(T, T + 60)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b'{"a": 1}', b"\xff\xfe", b"\r\r", b"[" * 100_000]
)
def test_other_files_are_named_as_such(data):
    with pytest.raises(ValueError, match="sacct"):
        read_launches(data)


def test_slurm_tells_when_the_job_began(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_START_TIME", "1767225600")
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    assert identify().launched == 1_767_225_600 * 10**9
    assert job_labels()["slurm_job"] == "123"
    monkeypatch.setenv("SLURM_STEP_ID", "7")  # an earlier step has used that time
    assert identify().launched is None
    monkeypatch.setenv(LAUNCHED, "1767225000")
    assert identify().launched == 1_767_225_000 * 10**9


def test_torchruns_agent_is_the_parent_of_a_rank(monkeypatch):
    code = "from fastplan.ett.journal import identify; print(identify().launched)"
    assert python(code) == "None"
    launched = int(python(code, TORCHELASTIC_RUN_ID="x"))
    # This process is the parent, and began before the test.
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    assert launched / 1e9 == pytest.approx(time.time() - age, abs=0.5)


def test_pods_are_known_by_their_name(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert job_labels()["pod"] == os.uname().nodename
    monkeypatch.setenv("POD_NAME", "trainer-0")
    assert job_labels()["pod"] == "trainer-0"
