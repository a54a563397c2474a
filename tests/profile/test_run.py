"""Profiles of files: resumed after a kill, split over workers, merged."""

import os
import signal
import subprocess
import sys

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
    add, added = run._add, []

    def interrupted(table, name, ids, lengths):
        added.append(name)
        if len(added) == 3:
            signal.raise_signal(signal.SIGINT)
        add(table, name, ids, lengths)

    monkeypatch.setattr(run, "_add", interrupted)
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
