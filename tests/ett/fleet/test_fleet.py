"""A fleet is read incrementally: what is new, what has grown, and nothing twice."""

import errno
import json
import os
import subprocess
import sys

import msgspec
import pytest

from bench.fleet_jobs import Fleet, write_jobs
from fastplan.ett.arithmetic import read_report
from fastplan.ett.fleet import read
from fastplan.ett.fleet.jobs import FleetError
from fastplan.ett.fleet.page import fleet_page
from fastplan.ett.fleet.places import Walk
from fastplan.ett.fleet.select import PathRule, Selection, parse_moment
from fastplan.ett.fleet.store import FleetStore, default_database
from fastplan.ett.fleet.update import update
from tests.cli.command import environment
from tests.ett.fleet.samples import mlperf_run, row, text
from tests.ett.runs import Rank

pytest.importorskip("duckdb")
LONG_AGO = 1_700_000_000


@pytest.fixture
def folder(tmp_path):
    """Three jobs of two ranks, and an MLPerf log, all written long ago."""
    place = tmp_path / "runs"
    write_jobs(place, 0, 3, Fleet(ranks=2))
    (place / "a.log").write_bytes(text(mlperf_run()))
    (place / "readme.txt").write_text("nothing\n")
    age(place)
    return place


def age(place):
    for path in (*place.rglob("*"), place):
        os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture
def store(tmp_path):
    return FleetStore(str(tmp_path / "fleet.duckdb"))


def refresh(store, *roots):
    return update(store, [str(root) for root in roots], workers=1)


def test_figures_are_those_of_the_report_on_each_job(store, folder):
    done = refresh(store, folder)
    assert (done.read, done.unchanged, done.gone) == (5, 0, ())
    jobs = {job.source: job for job in store.jobs([str(folder)])}
    assert len(jobs) == 4
    for place in folder.glob("*/*"):
        report, job = read_report(place), jobs[str(place)]
        assert job.phases == report.phases
        assert (job.ett, job.seconds, job.train_s) == (
            report.ett,
            report.seconds,
            report.productive,
        )
        assert (job.time_to_start_s, job.failures) == (report.time_to_start, report.failures)
        assert tuple(job.times_to_recover_s) == report.times_to_recover


@pytest.mark.parametrize("where", ["label", "directory"])
def test_a_text_that_is_not_utf8_stops_no_other_job(store, folder, where):
    update(store, [str(folder)])
    others = len(store.jobs([str(folder)]))
    bad = folder / ("bad" if where == "label" else os.fsdecode(b"bad\xff"))
    rank = Rank(bad)
    rank.do("imports", 3.0).steps(0, 4, 1.0)
    rank.recorder.stop()
    if where == "label":
        lines = rank.lines()
        lines[0]["labels"] = {"team": "a\udc80"}
        rank.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    update(store, [str(folder)])
    jobs = store.jobs([str(folder)])
    assert len(jobs) == others + 1
    assert "\\udc" in repr(jobs)


def test_what_was_read_is_not_read_again(store, folder):
    refresh(store, folder)
    before = store.jobs([str(folder)])
    done = refresh(store, folder)
    assert (done.read, done.unchanged) == (0, 5)
    assert store.jobs([str(folder)]) == before


def test_settled_directories_are_not_even_listed(store, folder, monkeypatch):
    refresh(store, folder)
    known, listed, scan = store.known(), [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scan(path))
    assert list(Walk([str(folder)], known)) == []
    monkeypatch.undo()
    assert sorted(listed) == sorted(map(str, [folder, *folder.glob("team*")]))


def test_only_new_and_grown_recordings_are_read(store, folder):
    running = folder / "running"
    rank = Rank(running).do("plan", 2.0).steps(0, 3, 1.0)
    refresh(store, folder)
    rank.steps(4, 9, 1.0).recorder.stop()
    write_jobs(folder, 3, 1, Fleet(ranks=2))
    done = refresh(store, folder)
    assert done.read == 2
    jobs = {job.source: job for job in store.jobs([str(folder)])}
    assert jobs[str(running)].train_s == read_report(running).productive
    assert len(jobs) == 6


def test_a_log_that_has_grown_replaces_its_row(store, folder):
    log = folder / "a.log"
    log.write_bytes(text(mlperf_run()[:-1]))
    refresh(store, folder)
    log.write_bytes(text(mlperf_run()))
    refresh(store, folder)
    (job,) = store.jobs([str(log)])
    assert job.train_s == 240.007


def test_a_directory_that_changed_just_now_is_looked_at_again(store, folder):
    fresh = folder / "fresh"
    Rank(fresh).do("plan", 1.0).steps(0, 1, 1.0).recorder.stop()
    refresh(store, folder)
    assert not store.known()[str(fresh)].settled
    age(fresh)
    assert refresh(store, folder).read == 0


def test_jobs_of_other_paths_are_not_shown(store, folder, tmp_path):
    other = tmp_path / "runs2"
    write_jobs(other, 7, 1, Fleet(ranks=1))
    refresh(store, folder)
    refresh(store, other)
    assert len(store.jobs([str(folder)])) == 4
    assert len(store.jobs([str(other)])) == 1
    assert store.jobs([str(tmp_path / "run")]) == []


def test_gone_recordings_are_kept_until_they_are_forgotten(store, folder):
    refresh(store, folder)
    (folder / "a.log").unlink()
    done = refresh(store, folder)
    assert done.gone == (str(folder / "a.log"),)
    assert len(store.jobs([str(folder)])) == 4
    store.forget(done.gone)
    assert len(store.jobs([str(folder)])) == 3


def test_a_killed_update_loses_nothing_that_it_has_staged(tmp_path, folder):
    """Another process reads, and is killed before it can use the database again."""
    code = """
import os, sys
from fastplan.ett.fleet import update as module
from fastplan.ett.fleet.store import FleetStore
module._STAGE_BYTES = 1
class Store(FleetStore):
    count = 0
    def stage(self, lines):
        super().stage(lines)
        Store.count += bool(lines)
        if Store.count == 3:
            os.kill(os.getpid(), 9)
module.update(Store(sys.argv[1]), [sys.argv[2]], workers=1)
"""
    path = str(tmp_path / "fleet.duckdb")
    command = [sys.executable, "-c", code, path, str(folder)]
    assert subprocess.run(command, env=environment()).returncode == -9
    store = FleetStore(path)
    assert len(store.known()) == 3
    assert refresh(store, folder).read == 2
    assert len(store.jobs([str(folder)])) == 4


def test_a_staged_file_that_is_merged_twice_changes_nothing(store, folder, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda path: None)  # killed just before
        refresh(store, folder)
        before = store.jobs([str(folder)])
    assert store.jobs([str(folder)]) == before


def test_several_writers_wait_for_each_other(tmp_path, folder):
    path = str(tmp_path / "fleet.duckdb")
    code = """
import sys
from fastplan.ett.fleet.store import FleetStore
from fastplan.ett.fleet.update import update
update(FleetStore(sys.argv[1]), sys.argv[2:], workers=1)
"""
    places = [str(place) for place in sorted(folder.glob("*/*"))]
    running = [
        subprocess.Popen([sys.executable, "-c", code, path, place], env=environment())
        for place in [*places, str(folder)]
    ]
    assert [process.wait() for process in running] == [0] * 4
    assert len(FleetStore(path).jobs([str(folder)])) == 4


def test_a_lock_says_who_holds_it(store, folder):
    told = []
    other = FleetStore(store._path, told.append)
    import fcntl

    with open(f"{store._path}.lock", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4711")
        file.flush()

        def release(text):
            told.append(text)
            fcntl.flock(file, fcntl.LOCK_UN)

        other._waiting = release
        other.known()
    assert told == [f"waiting for process 4711, which writes to {store._path}"]


def test_many_places_are_read_by_several_processes(store, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "_FEW", 4)
    for number in range(10):
        (tmp_path / f"{number}.log").write_bytes(text(mlperf_run(init=1000 + number)))
    done = update(store, [str(tmp_path)], workers=2)
    assert done.read >= 10
    starts = sorted(job.time_to_start_s for job in store.jobs([str(tmp_path)]))
    assert starts == [1.0 + number / 1000 for number in range(10)]


def test_urls_of_fsspec_are_read_too(store, folder):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/bucket/runs", recursive=True)
    try:
        done = refresh(store, "memory://bucket/runs")
        assert done.read == 5
        remote = store.jobs(["memory://bucket/runs"])
        local = FleetStore(":memory:")
        refresh(local, folder)
        assert [job.phases for job in remote] == [job.phases for job in local.jobs([str(folder)])]
        assert refresh(store, "memory://bucket/runs").read == 0
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.fixture
def usual(tmp_path, monkeypatch):
    """The database in the user's cache directory."""
    monkeypatch.delenv("FASTPLAN_FLEET", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(tmp_path))
    return tmp_path / "fleet.duckdb"


def test_a_damaged_database_says_what_to_do(usual):
    usual.write_bytes(b"no database" * 1000)
    with pytest.raises(FleetError, match="delete it, and everything is read again"):
        FleetStore(default_database()).known()


@pytest.mark.parametrize("variable", ["", "FASTPLAN_FLEET"])
def test_nobody_is_told_to_delete_a_file_that_they_named(tmp_path, usual, monkeypatch, variable):
    path = tmp_path / "model.yaml"
    path.write_bytes(b"tables: []" * 1000)
    if variable:
        monkeypatch.setenv(variable, str(path))
    with pytest.raises(FleetError, match=r"; choose another --db$"):
        FleetStore(default_database() if variable else str(path)).known()


_KNOWN = """
import sys
from fastplan.ett.fleet.store import FleetStore
print(FleetStore(sys.argv[1]).known())
"""


def known_by_another_process(database):
    """It would wait for the writer of a pipe, so it has a time limit."""
    words = [sys.executable, "-c", _KNOWN, database]
    return subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=120)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/none", path)])
def test_others_put_something_else_beside_staged_files(tmp_path, make):
    database = str(tmp_path / "fleet.duckdb")
    assert FleetStore(database).known() == {}
    make(f"{database}.staged/a.jsonl")
    ended = known_by_another_process(database)
    assert ended.stdout == "{}\n", ended.stderr


def test_a_pipe_is_no_database(tmp_path):
    database = str(tmp_path / "fleet.duckdb")
    os.mkfifo(database)
    ended = known_by_another_process(database)
    assert "is not a file; name another one with --db" in ended.stderr


@pytest.mark.parametrize("target", ["/nowhere", "{self}", "/etc/passwd/x", f"/{'x' * 300}"])
@pytest.mark.parametrize("place", ["link", "link.ett.jsonl", "{job}/link", "{job}/link.ett.jsonl"])
def test_a_link_that_leads_nowhere_costs_only_itself_and_is_reported(store, folder, place, target):
    job = next(folder.rglob("*.ett.jsonl")).parent
    link = folder / place.format(job=job)
    link.symlink_to(target.format(self=link))
    os.utime(link.parent, (LONG_AGO, LONG_AGO))
    for _ in range(2):  # also when the job beside it is known
        (problem,) = refresh(store, folder).problems
        assert problem.startswith(f"{link}: ")
        assert len(store.jobs([str(folder)])) == 4


def test_jobs_at_a_path_that_cannot_be_read_are_not_gone(store, folder, tmp_path):
    outside = tmp_path / "b.log"
    (folder / "a.log").rename(outside)
    (folder / "a.log").symlink_to(outside)
    refresh(store, folder)
    (folder / "a.log").unlink()
    (folder / "a.log").symlink_to("a.log")
    assert refresh(store, folder).gone == ()
    (folder / "a.log").unlink()
    assert refresh(store, folder).gone == (str(folder / "a.log"),)


def test_a_job_in_a_folder_whose_name_is_no_unicode_is_not_gone(store, folder):
    job = next(folder.rglob("*.ett.jsonl")).parent
    os.rename(job, os.fsencode(folder) + b"/\xff")
    for _ in range(2):
        assert refresh(store, folder).gone == ()


def test_jobs_below_a_directory_that_cannot_be_listed_are_not_gone(store, folder, monkeypatch):
    refresh(store, folder)
    scandir = os.scandir

    def refusing(path):
        if path == str(folder):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    done = refresh(store, folder)
    assert done.problems == (f"{folder}: Permission denied",)
    assert done.gone == ()


def test_a_path_that_is_not_there_is_an_error(store):
    with pytest.raises(FleetError, match="/nowhere: no such directory or file"):
        refresh(store, "/nowhere")


def test_rules_over_paths_give_labels_and_recorded_ones_win():
    rule = PathRule("{cluster}/{team}/run-{job}")
    assert rule.labels("/a/b/east/ads/run-7") == {"cluster": "east", "team": "ads", "job": "7"}
    assert rule.labels("/a/b/east/ads/other") == {}
    job = row(place="/x/east/ads/run-7", labels={"team": "feed"})
    (found,) = Selection(rule=rule).apply([job])
    assert found.labels == {"cluster": "east", "team": "feed", "job": "7"}
    assert found.job == "7"
    for text_ in ("", "no names", "{a}/{a}"):
        with pytest.raises(ValueError, match="must name labels"):
            PathRule(text_)


def test_jobs_are_selected_by_label_and_date():
    jobs = [row(i, labels={"team": "ab"[i % 2]}) for i in range(4)]
    first = jobs[0].begin
    assert Selection(where={"team": "b"}).apply(jobs) == [jobs[1], jobs[3]]
    assert Selection(since=first + 86_400, until=first + 3 * 86_400).apply(jobs) == jobs[1:3]
    assert Selection(where={"job": "job2"}).apply(jobs) == [jobs[2]]
    assert Selection(since=0.0).apply([row(begin=None)]) == []


def test_moments_are_dates_or_ages():
    assert parse_moment("2026-01-01", 0.0) == 1_767_225_600.0
    assert parse_moment("14d", 2_000_000.0) == 2_000_000.0 - 14 * 86_400
    with pytest.raises(ValueError, match="2026-01-31"):
        parse_moment("yesterday", 0.0)


def test_links_next_to_the_database_are_not_followed(tmp_path, folder):
    path = tmp_path / "shared.duckdb"
    precious = tmp_path / "precious"
    precious.write_text("do not empty")
    lock = tmp_path / "shared.duckdb.lock"
    lock.symlink_to(precious)
    with pytest.raises(FleetError, match=r"\.lock can't be locked"):
        refresh(FleetStore(str(path)), folder)
    assert precious.read_text() == "do not empty"
    lock.unlink()
    (recording, *_) = sorted(folder.rglob("*.jsonl"))
    staged = tmp_path / "shared.duckdb.staged"
    staged.rmdir()
    staged.symlink_to(recording.parent)
    with pytest.raises(FleetError, match="is a link"):
        FleetStore(str(path))
    assert recording.exists()


def staged(folder, *jobs):
    place = {"place": f"{folder}/x", "kind": "csv", "read_at": 1.0, "jobs": jobs}
    return json.dumps(place).encode() + b"\n"


def test_rows_that_another_user_has_made_up_say_what_to_do(store, folder):
    store.stage(staged(folder, {"source": 5}))
    with pytest.raises(FleetError, match="choose another --db"):
        store.jobs([str(folder)])


@pytest.mark.parametrize("begin", [["a"], {}, "x", 1e300, -1.0])
def test_a_begin_that_is_no_time_does_not_stop_the_others(store, folder, begin):
    good = json.loads(msgspec.json.encode(row()))
    store.stage(staged(folder, None, good, {**good, "begin": begin}))
    if type(begin) is float:
        assert {job.begin for job in store.jobs([str(folder)])} == {good["begin"], None}
        fleet_page(store.jobs([str(folder)]))
    else:
        assert store.known().keys() == {f"{folder}/x"}
