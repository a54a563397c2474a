"""The file: killed writers, full disks, directories that can't be written to."""

import logging
import os
import shutil

import pytest

from fastplan.ett import journal
from fastplan.ett.journal import Journal, identify
from fastplan.ett.reading import RecordError, read, read_job
from tests.ett.processes import run, start
from tests.ett.runs import Rank, entries


class Disk:
    """Takes so many bytes, then none."""

    def __init__(self, monkeypatch, room):
        self.room = room
        self._write = os.write
        monkeypatch.setattr(journal.os, "write", self.write)

    def write(self, file, data):
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        taken = self._write(file, data[: self.room])
        self.room -= taken
        return taken


def test_every_process_has_a_file_of_its_own(tmp_path):
    files = {Journal(str(tmp_path), identify()).path for _ in range(20)}
    assert len(files) == len(list(tmp_path.iterdir())) == 20


def test_a_directory_is_made(tmp_path):
    Journal(str(tmp_path / "a" / "b"), identify())
    assert len(list((tmp_path / "a" / "b").iterdir())) == 1


def test_a_directory_that_vanishes_is_said_once(tmp_path, caplog):
    rank = Rank(tmp_path / "runs").do("plan", 1.0)
    shutil.rmtree(tmp_path / "runs")
    for _ in range(3):
        rank.do("shard", 1.0)
    rank.recorder.stop()
    assert caplog.text.count("was removed while the job runs: its record will be lost") == 1


def test_a_full_disk_is_waited_for_and_no_line_is_incomplete(tmp_path, monkeypatch):
    rank = Rank(tmp_path)
    disk = Disk(monkeypatch, room=70)
    rank.do("process_group", 1.0).do("plan", 1.0)
    assert not rank.path.read_bytes().endswith(b"\n")
    disk.room = 1 << 20
    rank.do("shard", 1.0)
    phases = [entry["name"] for entry in entries(rank.path, "phase")]
    assert phases == ["process_group", "plan", "shard"]
    assert not entries(rank.path, "lost")


def test_steps_lose_nothing_to_a_full_disk(tmp_path, monkeypatch):
    rank = Rank(tmp_path)
    rank.steps(0, 0, 0.1)
    disk = Disk(monkeypatch, room=0)
    rank.do("checkpoint_save", 1.0).steps(1, 100_000, 0.1)
    disk.room = 1 << 20
    rank.steps(100_001, 101_000, 0.1)
    rank.recorder.stop()
    record = read(rank.path)
    assert sum(steps.last + 1 - steps.first for steps in record.steps) == 101_001
    assert len(entries(rank.path, "steps")) < 20


def test_lines_lost_to_a_full_disk_are_counted_once_it_has_space(tmp_path, monkeypatch):
    rank = Rank(tmp_path)
    disk = Disk(monkeypatch, room=100)
    for number in range(2_000):
        rank.do(f"phase number {number}", 0.001)
    assert len(rank.recorder._journal._held) <= journal.HELD
    disk.room = 1 << 30
    rank.do("plan", 1.0)
    lost = entries(rank.path, "lost")
    kept = len(entries(rank.path)) - 2
    assert lost[0]["lines"] + kept == 4_000 + 2
    assert any("lines were lost" in problem for problem in read(rank.path).problems)


def test_a_full_disk_is_logged_once(tmp_path, monkeypatch, caplog):
    rank = Rank(tmp_path)
    Disk(monkeypatch, room=0)
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            rank.do("plan", 1.0)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_a_real_limit_on_the_file_size_leaves_a_readable_file(tmp_path):
    code = """
import resource, sys
sys.dont_write_bytecode = True  # what is imported below the limit would be cut off in its cache
from fastplan import ett
from fastplan.ett.reading import read
with ett.phase("plan"): pass
path = ett.recording._active.path
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
for number in range(50):
    with ett.phase(f"phase {number}", detail=number): pass
assert read(path).problems, "the last line must be incomplete"
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
with ett.phase("last"): pass
ett.stop()
record = read(path)
assert not record.problems, record.problems
print(sum(phase.name != "imports" for phase in record.phases))
"""
    assert run(code, tmp_path) == "52"


def test_a_directory_that_cannot_be_written_to_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    code = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from fastplan import ett
with ett.phase("plan"): ett.step(1)
ett.checkpoint(1); ett.failure("x"); ett.stop()
"""
    output = run(code, tmp_path / "file" / "runs")
    assert output.count("nothing is recorded") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_costs_a_warning(tmp_path):
    tmp_path.chmod(0o500)
    assert run("from fastplan import ett; print(ett.start())", tmp_path) == "None"
    tmp_path.chmod(0o700)


def test_a_killed_writer_leaves_what_it_had_written(tmp_path):
    code = """
from fastplan import ett
for number in range(10**9):
    with ett.phase("plan", detail="x" * (number % 300)): pass
    if number == 100: print("ready", flush=True)
"""
    for _ in range(5):
        process = start(code, tmp_path)
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.communicate()
    records, problems = read_job(tmp_path)
    assert len(records) == 5
    assert not problems
    for record in records:
        assert len(record.phases) > 100
        assert record.end is None


def test_a_killed_job_keeps_the_steps_that_were_written(tmp_path):
    code = """
import os
from fastplan import ett
ett.step(0)
path, size, written = ett.recording._active.path, 0, -1
for number in range(1, 10**9):
    ett.step(number)
    if number % 1000 == 0 and os.path.getsize(path) > size:
        if size: written = number - 1000
        size = os.path.getsize(path)
        if written > 0: print(written, flush=True)
"""
    process = start(code, tmp_path)
    written = int(process.stdout.readline())
    process.kill()
    process.communicate()
    (record,), _ = read_job(tmp_path)
    assert record.steps[-1].last >= written
    assert record.steps[0].first == 0


def test_a_file_cut_at_any_byte_is_read_up_to_there(tmp_path):
    rank = Rank(tmp_path)
    rank.do("plan", 1.0, engine="native").steps(0, 3, 0.5)
    rank.recorder.checkpoint(3)
    rank.do("eval", 2.0).steps(4, 6, 2.0)
    rank.recorder.stop()
    whole = rank.path.read_bytes()
    first = whole.index(b"\n") + 1
    seen = []
    for size in [*range(0, len(whole), 3), len(whole)]:
        rank.path.write_bytes(whole[:size])
        if size < first:
            with pytest.raises(RecordError):
                read(rank.path)
            continue
        record = read(rank.path)
        incomplete = not whole[:size].endswith(b"\n")
        assert any("incomplete" in problem for problem in record.problems) == incomplete
        seen.append((len(record.phases), sum(s.last + 1 - s.first for s in record.steps)))
    assert seen == sorted(seen)
    assert seen[-1] == (2, 7)
