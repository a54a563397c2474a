"""MLPerf's logs: times to the millisecond, and whatever else such a file may have."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from fastplan.ett import imports
from fastplan.ett.imports import import_file, recognise
from fastplan.ett.imports import mllog as mllog_import
from tests.ett.fleet.samples import mllog, mlperf_run, text


def jobs(lines, name="a.log"):
    data = lines if isinstance(lines, bytes) else text(lines)
    assert recognise(name, data) == "mllog"
    return import_file("mllog", name, data)


def test_init_and_run_are_those_of_the_log_to_the_millisecond():
    (job,) = jobs(mlperf_run(init=61_251, run=240_007))
    assert (job.time_to_start_s, job.train_s) == (61.251, 240.007)
    assert job.phases == {"init": 61.251, "starting": 0.003, "run": 240.007}
    assert job.within == {"eval": 4.0}
    assert job.seconds == pytest.approx(301.261, abs=1e-9)
    assert job.ett == pytest.approx(240.007 / 301.261)
    assert job.labels == {"model": "dlrm_dcnv2", "team": "Example", "cluster": "2xBox"}
    assert job.failures == 0


def test_foreign_lines_prefixes_and_endings_are_no_matter():
    lines = mlperf_run()
    noisy = ["+ srun train.py", "\x1b[31mwarning\x1b[0m :::ML", "3: " + lines[0]]
    for number, line in enumerate(lines[1:]):
        noisy += [f"[1,{number}]<stdout>{line} trailing words", "", "{not json", "a" * 5000]
    data = "\r\n".join(noisy).encode() + b"\xff\xfe\x00\n"
    assert jobs(data)[0].phases == jobs(lines)[0].phases


def test_a_log_that_is_cut_at_any_byte_is_read_as_far_as_it_goes():
    data = text(mlperf_run())
    whole = import_file("mllog", "a.log", data)[0]
    seen = set()
    for end in range(len(data)):
        found = import_file("mllog", "a.log", data[:end])
        assert len(found) <= 1
        for job in found:
            assert 0 <= job.train_s <= whole.train_s
            assert job.time_to_start_s in (None, whole.time_to_start_s)
            seen.add((job.time_to_start_s, job.train_s))
    assert (None, 0.0) in seen
    assert (whole.time_to_start_s, 0.0) in seen
    assert (whole.time_to_start_s, 7.0) in seen  # up to the last evaluation
    assert (whole.time_to_start_s, whole.train_s) in seen  # only its line end is missing


def test_a_run_without_its_end_says_so():
    (job,) = jobs(mlperf_run()[:-1])
    assert job.notes == ["the run has no end in the log: counted up to the last event"]


def test_a_job_waits_for_its_slowest_rank():
    first, second = mlperf_run(init=60_000, run=100_000), mlperf_run(init=60_500, run=100_000)
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    for lines in (mixed, [*first, *second]):
        (job,) = jobs(lines)
        assert job.time_to_start_s == 60.5
        assert job.train_s == 100.5


def test_ranks_may_write_to_the_same_line():
    lines = mlperf_run()
    assert jobs(["".join(lines)])[0].phases == jobs(lines)[0].phases


def test_several_runs_in_a_row_are_several_jobs():
    first, second = jobs([*mlperf_run(), *mlperf_run(init=50_000, begin=10_000_000)])
    assert (first.source, second.source) == ("a.log", "a.log#2")
    assert second.time_to_start_s == 50.0


def test_a_run_that_was_aborted_is_a_failure():
    lines = [*mlperf_run()[:-1], mllog("run_stop", 99_000, status="aborted")]
    assert jobs(lines)[0].failures == 1


def test_the_first_rounds_had_another_format():
    lines = [
        ":::MLPv0.6.0 ncf 1538077470.250 (ncf.py:100) init_start",
        ":::MLPv0.6.0 ncf 1538077480.500 (ncf.py:120) init_stop: null",
        ":::MLPv0.6.0 ncf 1538077480.500 (ncf.py:161) run_start",
        ':::MLPv0.6.0 ncf 1538077500.750 (ncf.py:200) run_stop: {"success": false}',
    ]
    (job,) = jobs(lines)
    assert (job.time_to_start_s, job.train_s, job.failures) == (10.25, 20.25, 1)


@pytest.mark.parametrize(
    "time", ["1", '"x"', "1e400", "NaN", "-5", "true", "null", "[1]", "12345678901234567890123"]
)
def test_a_time_that_is_none_is_skipped_and_counted(time):
    line = f':::MLLOG {{"time_ms": {time}, "key": "eval_accuracy"}}'
    (job,) = jobs([*mlperf_run(), line])
    skipped = ["1 damaged lines of MLLOG are skipped"]
    assert job.notes == ([] if time == "1" else skipped)


def test_times_may_be_fractions_or_texts():
    lines = mlperf_run()
    other = [
        line.replace('"time_ms": 1700000000000', '"time_ms": "1700000000000.0"') for line in lines
    ]
    assert other != lines
    assert jobs(other)[0].phases == jobs(lines)[0].phases


def test_the_second_format_of_the_first_rounds():
    lines = [
        ':::MLL 1556733600.000 submission_org: {"value": "Example", "metadata": {}}',
        ':::MLL 1556733600.250 init_start: {"value": null, "metadata": {"lineno": 5}}',
        ":::MLL 1556733610.500 init_stop: {\"value\": null, 'not': json}",
        ':::MLL 1556733610.500 run_start: {"value": null, "metadata": {"file": "x.py"}}',
        ':::MLL 1556733630.750 run_stop: {"metadata": {"status": "aborted"}, "value": null}',
    ]
    (job,) = jobs(lines)
    assert (job.time_to_start_s, job.train_s, job.failures) == (10.25, 20.25, 1)
    assert job.labels == {"team": "Example"}


@pytest.mark.parametrize(
    "prefix", ["[rank0] ", "[rank0]: ", "0: ", "2024-05-01T00:00:00Z stdout F "]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_prefixes_and_line_ends_of_launchers(prefix, end):
    lines = mlperf_run()
    data = end.join(f"{prefix}{line}" for line in lines).encode()
    assert jobs(data) == jobs(lines)


def test_lines_that_docker_wrapped_are_unwrapped():
    lines = mlperf_run()
    wrapped = [json.dumps({"log": f"{line}\n", "stream": "stdout"}) for line in lines]
    assert jobs(wrapped) == jobs(lines)


def test_a_compressed_log_is_the_same():
    data = text(mlperf_run())
    packed = gzip.compress(data[:700]) + gzip.compress(data[700:])
    assert recognise("a.log.gz", packed) == "mllog"
    assert import_file("mllog", "a", packed) == import_file("mllog", "a", data)
    for end in range(len(packed)):
        for job in import_file("mllog", "a", packed[:end]):
            assert job.train_s <= 240.007
    damaged = packed[:-60] + b"\0" * 60
    assert import_file("mllog", "a", damaged)[0].time_to_start_s == 61.25


def test_a_compressed_bomb_is_read_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(imports, "MOST_BYTES", 5000)
    packed = gzip.compress(text(mlperf_run()) + b" " * 10_000_000)
    read = []
    monkeypatch.setattr(mllog_import, "read_jobs", lambda place, data: read.append(data) or [])
    import_file("mllog", "a", packed)
    assert len(read[0]) == 5000


def test_lines_added_by_hand_without_a_time_only_have_a_value():
    line = ':::MLLOG {"time_ms": 0, "key": "submission_org", "value": "Other", "metadata": {}}'
    (job,) = jobs([*mlperf_run(), line])
    (plain,) = jobs(mlperf_run())
    assert (job.phases, job.begin, job.seconds) == (plain.phases, plain.begin, plain.seconds)
    assert job.labels["team"] == "Other"
    (alone,) = jobs([line])
    assert (alone.begin, alone.seconds, alone.time_to_start_s) == (None, 0.0, None)


def test_a_run_that_died_before_the_next_one_is_a_failure():
    died = mlperf_run()[:-1]
    first, second = jobs([*died, *mlperf_run(begin=10_000_000)])
    assert (first.failures, second.failures) == (1, 0)
    assert "another run follows, so it counts as a failure" in first.notes
    # The next run clears caches before it begins, which is no more time of the first one.
    assert first.train_s == 7.0
    assert (second.time_to_start_s, second.train_s) == (61.25, 240.007)


@pytest.mark.parametrize(
    ("counts", "ranks"),
    [
        ({"number_of_ranks": 64}, 64),
        ({"number_of_nodes": 8, "accelerators_per_node": 4}, 32),
        ({"number_of_nodes": 8}, None),
        ({"number_of_ranks": "many"}, None),
    ],
)
def test_the_number_of_ranks_is_known_if_the_log_has_it(counts, ranks):
    lines = [mllog(name, 5, value) for name, value in counts.items()]
    assert jobs([*mlperf_run(), *lines])[0].ranks == ranks


def scanned(data):
    """The times of events in milliseconds, found without fastplan."""
    found = {}
    for line in data.splitlines():
        if b":::MLLOG" in line:
            key = re.search(rb'"key"\s*:\s*"(\w+)"', line)
            at = re.search(rb'"time_ms"\s*:\s*(\d+)', line)
            if key and at:
                found.setdefault(key[1].decode(), []).append(int(at[1]))
    return found


def test_published_logs_have_the_times_that_a_scan_finds():
    """FASTPLAN_TEST_MLLOG names a directory of logs of one rank, such as those of a round."""
    folder = os.environ.get("FASTPLAN_TEST_MLLOG")
    if folder is None:
        pytest.skip("name a directory of MLPerf's logs in FASTPLAN_TEST_MLLOG")
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    assert paths
    for path in paths:
        data = path.read_bytes()
        (job,) = jobs(data, path.name)
        at = scanned(data)
        assert job.time_to_start_s == (at["init_stop"][-1] - at["init_start"][0]) / 1000, path
        assert job.train_s == (at["run_stop"][-1] - at["run_start"][0]) / 1000, path
        assert job.notes == [], path
