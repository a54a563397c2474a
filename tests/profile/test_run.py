"""Profiles of files: resumed after a kill, split over workers, merged."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from fastplan.profile import run
from fastplan.profile.run import (
    Settings,
    profile_files,
    profile_function,
    remove_states,
    statistics_by_table,
    stored_summaries,
)
from fastplan.profile.sources import ProfileError, read_unit
from fastplan.profile.state import Profile, read_profile, write_profile
from fastplan.profile.table import TableProfile

from .samples import FEATURES, write_npz


@pytest.fixture
def files(tmp_path):
    return [write_npz(tmp_path / f"{seed}.npz", seed) for seed in range(4)]


def statistics(*args, **options):
    return statistics_by_table(profile_files(FEATURES, *args, **options))


def test_a_profile_goes_on_after_an_interrupt(files, tmp_path, monkeypatch):
    settings = Settings(state=str(tmp_path / "state"), save_seconds=0.0)
    seen = []

    def interrupted(unit, features):
        seen.append(unit.file)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return read_unit(unit, features)

    monkeypatch.setattr(run, "read_unit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        statistics(files, settings)
    assert read_profile(settings.state).done == 2
    assert statistics(files, settings) == statistics(files)
    assert seen[:7] == [*files[:3], *files[2:], *files[:2]]


def test_an_interrupt_in_a_unit_keeps_its_batches(files, tmp_path, monkeypatch):
    settings = Settings(state=str(tmp_path / "state"))
    add, added = TableProfile.add, []

    def interrupted(table, ids, lengths):
        added.append(table)
        if len(added) == 3:
            signal.raise_signal(signal.SIGINT)
        add(table, ids, lengths)

    monkeypatch.setattr(TableProfile, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        statistics(files, settings)
    # The third batch is the first one of the second file, and is in.
    assert [getattr(read_profile(settings.state), name) for name in ("done", "batches")] == [1, 1]
    assert statistics(files, settings) == statistics(files)


KILLED = """
import os, sys
from fastplan.profile import run
from tests.profile.samples import FEATURES

units = iter(range(9))
read = run.read_unit
run.read_unit = lambda *unit: os._exit(9) if next(units) == 2 else read(*unit)
run.profile_files(FEATURES, sys.argv[2:], run.Settings(state=sys.argv[1], save_seconds=0.0))
"""


def test_a_killed_process_leaves_a_profile_to_go_on_from(files, tmp_path):
    state = str(tmp_path / "state")
    ended = subprocess.run([sys.executable, "-c", KILLED, state, *files], timeout=120)
    assert ended.returncode == 9
    assert read_profile(state).done == 2
    assert statistics(files, Settings(state=state)) == statistics(files)


def test_an_interrupt_in_the_first_file_keeps_its_batches(files, tmp_path, monkeypatch):
    settings = Settings(state=str(tmp_path / "state"))

    def interrupted(unit, features):
        yield next(read_unit(unit, features))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "read_unit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            statistics(files, settings)
    assert read_profile(settings.state).begun == 1
    with pytest.raises(ProfileError, match="is the profile of other data"):
        statistics(files[1:], settings)
    assert statistics(files, settings) == statistics(files)


def test_a_profile_of_nothing_is_neither_stored_nor_in_the_way(files, tmp_path, monkeypatch):
    settings = Settings(state=str(tmp_path / "state"))
    (tmp_path / "bad.npz").write_bytes(b"bad")
    with pytest.raises(ProfileError, match=r"bad\.npz: can't be read"):
        statistics([str(tmp_path / "bad.npz")], settings)
    assert not os.path.exists(settings.state)
    empty = Profile({name: TableProfile() for name in FEATURES}, 1 << 17)
    write_profile(empty, settings.state)
    assert statistics(files, settings) == statistics(files)


def test_a_partly_read_file_is_not_mixed_with_others(files, tmp_path):
    settings = Settings(state=str(tmp_path / "state"))
    bad = str(tmp_path / "bad.npz")
    clicks = {"clicks": np.arange(5), "clicks_lengths": np.ones(9, np.int64)}
    np.savez(bad, user=np.arange(100), **clicks)
    with pytest.raises(ProfileError, match="table 'item': `lengths` must add up to the 5 ids"):
        statistics([files[0], bad], settings)
    profile = read_profile(settings.state)
    assert (profile.done, profile.batches) == (1, 1)
    for others in (files[:1], files[:2]):
        with pytest.raises(ProfileError, match="is the profile of other data"):
            statistics(others, settings)
    np.savez(bad, user=np.arange(100))  # another version of the file
    with pytest.raises(ProfileError, match="is the profile of other data"):
        statistics([files[0], bad], settings)


def test_a_batch_with_a_bad_table_leaves_the_others_as_they_were(files, tmp_path, monkeypatch):
    settings = Settings(state=str(tmp_path / "state"))
    good = np.arange(10), np.ones(10, np.int64)

    def one_bad(unit, features):
        yield {"user": good, "item": good}
        yield {"user": good, "item": (good[0], good[1][1:])}

    monkeypatch.setattr(run, "read_unit", one_bad)
    with pytest.raises(ProfileError, match="table 'item'"):
        profile_files(FEATURES, files, settings)
    assert {table.ids for table in read_profile(settings.state).tables.values()} == {10}


def test_more_files_continue_a_profile(files, tmp_path):
    settings = Settings(state=str(tmp_path / "state"))
    statistics(files[:2], settings)
    assert statistics(files, settings) == statistics(files)


def test_a_profile_of_other_data_is_not_continued(files, tmp_path):
    settings = Settings(state=str(tmp_path / "state"))
    statistics(files[:2], settings)
    with pytest.raises(ProfileError, match="is the profile of other data"):
        statistics(files[::-1], settings)
    with pytest.raises(ProfileError, match="has other tables than the model, such as 'item'"):
        profile_files({"user": ("user",)}, files[:2], settings)
    with pytest.raises(ProfileError, match="follows 131072 ids per table, not 64"):
        statistics(files[:2], Settings(state=settings.state, limit=64))


def test_workers_profile_parts_that_are_merged(files, tmp_path):
    settings = Settings(state=str(tmp_path / "state"))
    done = []
    found = statistics(files, settings, executor=2, progress=lambda *each: done.append(each))
    assert done == [(2, 4), (4, 4)]
    parts = [f"{settings.state}.{i}-of-2" for i in range(2)]
    assert statistics_by_table(stored_summaries(parts)) == found
    halves = [profile_files(FEATURES, part) for part in (files[:2], files[2:])]
    assert statistics_by_table(run.merge_summaries(halves)) == found
    assert found["user"].ids == sum(half["user"].ids for half in halves)
    remove_states(settings.state)
    assert not any(map(os.path.exists, parts))


def test_workers_start_without_interrupts(files, monkeypatch):
    blocked, submit = [], ProcessPoolExecutor.submit

    def observed(*args):
        blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return submit(*args)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", observed)
    statistics(files, executor=2)
    assert blocked == [True, True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_names_few_of_many_states(tmp_path):
    state = str(tmp_path / "state")
    for number in range(9):
        (tmp_path / f"state.{number}-of-9").touch()
    assert run.way_on(state, 9).startswith(f"What was read is in {state}.0-of-9, {state}.1-of-9, ")
    assert " and 5 more: " in run.way_on(state, 9)
    assert "Nothing is in" in run.way_on(state) and "Nothing is in" in run.way_on(state, 8)


def test_states_of_any_name_are_removed(tmp_path):
    for name in ("a[1].state", "a[1].state.0-of-2", "a1.state.0-of-2"):
        (tmp_path / name).touch()
    remove_states(str(tmp_path / "a[1].state"))
    assert [file.name for file in tmp_path.iterdir()] == ["a1.state.0-of-2"]


def test_dask_workers_profile_parts(files):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as client:
        found = statistics(files, executor=client.get_executor(), parts=2)
    assert found == statistics(files, executor=2)


def test_a_function_goes_on_after_its_finished_batches(tmp_path):
    name = "tests.profile.samples:batches"
    settings = Settings(state=str(tmp_path / "state"))
    profile_function(FEATURES, name, settings, batches=2)
    found = profile_function(FEATURES, name, settings)
    assert statistics_by_table(found) == statistics_by_table(profile_function(FEATURES, name))
    with pytest.raises(ProfileError, match="other data"):
        profile_function(FEATURES, name, settings, part=(0, 2))


def test_limits_are_powers_of_two():
    with pytest.raises(ProfileError, match="power of two"):
        Settings(limit=1000)


def test_a_stored_profile_with_numbers_that_no_data_have_is_told(tmp_path):
    table = TableProfile(64)
    table.add(np.random.default_rng(0).zipf(1.3, 3000) % 500, np.ones(3000, np.int64))
    columns = {**table.columns(), "weights": np.array([1e-307, 1.0])}
    table.restore(columns)
    write_profile(Profile({"t": table}, 64, 1, 0, "x"), tmp_path / "state")
    with pytest.raises(ProfileError, match="table 't' has numbers that no data have"):
        statistics_by_table(stored_summaries([str(tmp_path / "state")]))
