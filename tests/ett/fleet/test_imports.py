"""Entries of ml-goodput-measurement and CSV of phases."""

import json
import random

import pytest

from fastplan.ett.imports import import_file, recognise
from tests.ett.fleet.samples import mlperf_run, text

T = 1_700_000_000.0


def entries():
    """A job that starts in 60 s, does 5 steps, fails, starts again from step 3 and ends."""
    name = {"job_name": "run-1"}
    found = [{**name, "job_start_time": T}]
    found += [{**name, "tpu_init_start_time": T + 10}, {**name, "tpu_init_end_time": T + 25}]
    found += [
        {**name, "training_prep_start_time": T + 25},
        {**name, "training_prep_end_time": T + 55},
    ]
    found += [{**name, "step_count": i, "step_start_time": T + 60 + 10 * i} for i in range(5)]
    found += [{**name, "job_start_time": T + 150}]
    found += [{**name, "step_count": i, "step_start_time": T + 150 + 10 * i} for i in range(3, 8)]
    return [*found, {**name, "job_end_time": T + 230}]


def as_lines(given):
    return "".join(json.dumps(entry) + "\n" for entry in given).encode()


def test_entries_become_phases_that_add_up():
    data = as_lines(entries())
    assert recognise("x.json", data) == "goodput"
    (job,) = import_file("goodput", "x.json", data)
    assert (job.job, job.place, job.source) == ("run-1", "x.json", "x.json")
    assert (job.time_to_start_s, job.failures, job.attempts) == (60.0, 1, 2)
    # Steps 0 to 2 were kept until the first start ended, then 3 to the end.
    assert job.phases["lost"] == pytest.approx(10.0)
    assert job.phases["training"] == pytest.approx(30.0 + 50.0)
    assert (job.phases["process_group"], job.phases["model_build"]) == (15.0, 30.0)
    assert sum(job.phases.values()) == pytest.approx(job.seconds) == pytest.approx(230.0)
    assert job.times_to_recover_s == [80.0]
    assert job.steps == 8


def test_log_entries_and_lists_are_read_too():
    plain = import_file("goodput", "x", as_lines(entries()))
    wrapped = [{"insertId": "a", "jsonPayload": entry} for entry in entries()]
    assert import_file("goodput", "x", json.dumps(wrapped, indent=2).encode()) == plain


def test_an_export_that_is_cut_is_read_as_far_as_it_goes():
    data = as_lines(entries())
    for end in range(0, len(data), 7):
        for job in import_file("goodput", "x", data[:end]):
            assert sum(job.phases.values()) == pytest.approx(job.seconds)


def test_csv_with_seconds_counts_one_after_the_other():
    data = (
        b"job,phase,seconds,team\na,imports,10,ads\na,plan,40,ads\na,training,950,ads\n"
        b"b,training,5,feed\na,down,3,\nb,plan,nonsense,\n"
    )
    assert recognise("phases.csv", data) == "csv"
    first, second = import_file("csv", "phases.csv", data)
    assert (first.job, first.time_to_start_s, first.train_s, first.failures) == (
        "a",
        50.0,
        950.0,
        1,
    )
    assert first.phases == {"imports": 10.0, "plan": 40.0, "training": 950.0, "down": 3.0}
    assert first.start == {"imports": 10.0, "plan": 40.0}
    assert (second.source, second.labels) == ("phases.csv#2", {"team": "feed"})
    assert first.notes == ["1 damaged lines are skipped"]


def test_csv_with_times_lets_the_latest_phase_win():
    data = b"job,phase,begin,end\na,training,100,200\na,eval,150,160\na,plan,90,100\n"
    (job,) = import_file("csv", "x.csv", data)
    assert job.phases == {"plan": 10.0, "training": 90.0, "eval": 10.0}
    assert (job.begin, job.time_to_start_s, job.seconds) == (90.0, 10.0, 110.0)


def test_csv_may_have_the_line_ends_of_any_system():
    lines = [b"job,phase,seconds", b"a,plan,40", b"a,training,60"]
    for end in (b"\n", b"\r\n", b"\r"):
        (job,) = import_file("csv", "x.csv", end.join(lines))
        assert job.phases == {"plan": 40.0, "training": 60.0}


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"job,seconds\n", b"{}", b"hello\n" * 100])
def test_other_files_are_not_recognised(data):
    assert recognise("x.csv", data) is None


@pytest.mark.parametrize("kind", ["mllog", "goodput", "csv"])
def test_damaged_bytes_never_raise(kind):
    whole = {
        "mllog": text(mlperf_run()),
        "goodput": as_lines(entries()),
        "csv": b"job,phase,begin,end,team\n" + b"a,plan,1,2,x\nb,training,2,1e9,y\n" * 20,
    }[kind]
    dice = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 8)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(4))
        for job in import_file(kind, "x", bytes(data)):
            assert job.seconds >= 0
            assert 0 <= job.ett <= 1
