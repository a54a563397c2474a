"""The directory: layout, size, and a cost that does not grow with it."""

import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from fastplan.cache.stores import DirectoryStore, GuardedStore, StoreError
from fastplan.cache.stores import directory as directory_module
from fastplan.cache.stores import folder as folder_module
from tests.cache.samples import data, key

CALLS = ("open", "scandir", "listdir", "stat", "lstat", "mkdir", "unlink", "utime")


def path(root, number, name="a"):
    return root / key(number)[:2] / key(number) / f"{name}.plan"


def held(root):
    return {number for number in range(500) if path(root, number).exists()}


def age(root, number, seconds, name="a"):
    """Makes an entry last used so many seconds ago."""
    then = time.time() - seconds
    os.utime(path(root, number, name), (then, then))


def size(root):
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


@pytest.fixture
def aged(tmp_path):
    """A store of 800 bytes with six entries of 100, the higher the number the longer unused."""
    store = DirectoryStore(tmp_path, max_bytes=800)
    for number in range(6):
        store.write(key(number), "a", bytes(100))
    store.wait_for_sweep()
    for number in range(6):
        age(tmp_path, number, 10 * (number + 1))
    return store


def test_an_entry_is_one_file_in_a_folder_per_key(tmp_path):
    DirectoryStore(tmp_path / "new" / "plans").write(key(1), "gpu-80", data(1))
    files = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()]
    assert files == [f"new/plans/{key(1)[:2]}/{key(1)}/gpu-80.plan"]


def test_making_a_store_touches_nothing(tmp_path):
    DirectoryStore(tmp_path / "plans")
    assert not (tmp_path / "plans").exists()


def test_files_get_the_rights_that_the_user_gives_to_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        DirectoryStore(tmp_path).write(key(1), "a", data(1))
    finally:
        os.umask(before)
    assert path(tmp_path, 1).stat().st_mode & 0o777 == 0o640


def test_nothing_is_removed_below_the_limit(aged, tmp_path):
    assert aged.sweep() == 0
    assert held(tmp_path) == set(range(6))


def test_the_least_recently_used_go_first_and_an_eighth_is_left_free(aged, tmp_path):
    for number in range(6, 9):
        aged.write(key(number), "a", bytes(100))
    aged.wait_for_sweep()
    aged.sweep()
    assert held(tmp_path) == {0, 1, 2, 3, 6, 7, 8}
    assert size(tmp_path) == 700


def test_a_marked_entry_counts_as_used(aged, tmp_path):
    aged.touch(key(5), "a")
    path(tmp_path, 0, "b").write_bytes(bytes(200))
    assert aged.sweep() == 100
    assert held(tmp_path) == {0, 1, 2, 3, 5}


def test_entries_are_listed_with_the_time_of_their_last_use(aged, tmp_path):
    os.utime(path(tmp_path, 3), (1.7e9, 1.7e9))
    (path(tmp_path, 3).parent / "notes.txt").write_text("foreign")
    listed = {stored.key: stored for stored in aged.entries()}
    assert len(listed) == 6
    assert listed[key(3)] == (key(3), "a", 100, 1.7e9)


def test_a_removed_entry_takes_its_empty_folders_with_it(aged, tmp_path):
    path(tmp_path, 0, "b").write_bytes(bytes(200))
    aged.sweep()
    assert not path(tmp_path, 5).parent.exists()
    aged.delete(key(4), "a")
    assert not path(tmp_path, 4).parent.exists()


def test_what_was_just_written_stays_even_if_it_is_too_large(aged, tmp_path):
    aged.write(key(9), "a", bytes(5000))
    aged.wait_for_sweep()
    assert held(tmp_path) == {9}


def test_what_was_just_written_stays_even_if_the_clock_of_the_server_is_slow(aged, tmp_path):
    path(tmp_path, 0, "b").write_bytes(bytes(200))
    aged.sweep(keep=(key(5), "a"))
    assert held(tmp_path) == {0, 1, 2, 3, 5}


def test_an_entry_used_since_the_survey_stays(aged, tmp_path, monkeypatch):
    path(tmp_path, 0, "b").write_bytes(bytes(200))
    survey = aged._survey

    def survey_then_use():
        found = survey()
        aged.touch(key(5), "a")
        aged.write(key(4), "a", bytes(100))
        return found

    monkeypatch.setattr(aged, "_survey", survey_then_use)
    aged.sweep()
    assert held(tmp_path) == {0, 1, 2, 4, 5}


def test_what_another_process_removed_counts_as_removed(aged, tmp_path, monkeypatch):
    path(tmp_path, 0, "b").write_bytes(bytes(200))
    survey = aged._survey

    def survey_then_vanish():
        found = survey()
        shutil.rmtree(path(tmp_path, 5).parent)
        return found

    monkeypatch.setattr(aged, "_survey", survey_then_vanish)
    assert aged.sweep() == 0
    assert held(tmp_path) == {0, 1, 2, 3, 4}


def test_a_store_sweeps_once_per_eighth_written_and_stays_within_the_limit(tmp_path, monkeypatch):
    sweeps = []
    monkeypatch.setattr(
        DirectoryStore,
        "sweep",
        lambda self, keep=None, whole=DirectoryStore.sweep: sweeps.append(whole(self, keep)),
    )
    store = DirectoryStore(tmp_path, max_bytes=16_000)
    for number in range(200):
        store.write(key(number), "a", bytes(200))
        store.wait_for_sweep()
        assert size(tmp_path) <= 16_000 + 200
    assert 18 <= len(sweeps) <= 21
    assert 199 in held(tmp_path)


def test_many_processes_that_write_once_stay_near_the_limit_together(tmp_path, monkeypatch):
    draw = random.Random(8)
    monkeypatch.setattr(directory_module, "SystemRandom", lambda: draw)
    for number in range(400):
        store = DirectoryStore(tmp_path, max_bytes=16_000)
        store.write(key(number), "a", bytes(200))
        store.wait_for_sweep()
    assert 8_000 < size(tmp_path) < 24_000
    assert 399 in held(tmp_path)


def test_a_sweep_that_fails_warns_without_control_characters(tmp_path, caplog):
    root = tmp_path / "plans\x1b[2J\u202e"
    root.write_text("in the way")
    DirectoryStore(root)._sweep_quietly(key(1), "a")
    assert "sweeping failed" in caplog.text
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text


def test_old_temporary_files_are_removed_and_young_ones_stay(aged, tmp_path):
    folder = path(tmp_path, 0).parent
    old, young = folder / f".{'0' * 16}.tmp", folder / f".{'1' * 16}.tmp"
    for file in (old, young):
        file.write_bytes(b"half a pl")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    aged.sweep()
    assert not old.exists()
    assert young.exists()
    assert aged.read(key(0)) == [("a", bytes(100))]


def test_no_folder_is_listed_without_end(aged, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "MOST_LISTED", 3)
    for number in range(9):
        path(tmp_path, 0, f"b{number}").write_bytes(b"x")
        path(tmp_path, 0).with_name(f"{number}.txt").write_bytes(b"x")
    assert len(aged.read(key(0))) <= 3
    assert len(aged.use(key(0)).entries) <= 3
    assert len([stored for stored in aged.entries() if stored.key == key(0)]) <= 3
    files, _ = aged._survey()
    assert len([file for file in files if file.key == key(0)]) <= 3


def test_empty_folders_that_a_killed_process_left_are_removed(aged, tmp_path):
    path(tmp_path, 77).parent.mkdir(parents=True)
    aged.sweep()
    assert not path(tmp_path, 77).parent.exists()


def test_foreign_files_are_neither_read_nor_listed_nor_removed(aged, tmp_path):
    folder = path(tmp_path, 0).parent
    foreign = [
        tmp_path / "README.md",
        tmp_path / "zz" / "a.plan",
        tmp_path / "ab" / "notes" / "a.plan",
        tmp_path / "00" / ("11" * 16) / "a.plan",
        folder / "a.plan.bak",
        folder / "A.plan",
        folder / ".hidden.tmp",
        folder / "sub" / "a.plan",
    ]
    for file in foreign:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(1000))
        os.utime(file, (0, 0))
    (folder / "b.plan").mkdir()
    aged.sweep()
    assert [name for name, _ in aged.read(key(0))] == ["a"]
    assert set(aged.keys()) == {key(number) for number in range(6)}
    assert all(file.exists() for file in foreign)
    assert held(tmp_path) == set(range(6))


def test_using_a_key_reads_its_entries_and_marks_them_as_used(tmp_path):
    store = DirectoryStore(tmp_path)
    for name in ("a", "b"):
        store.write(key(1), name, data(1))
        age(tmp_path, 1, 1000, name)
    assert store.use(key(1)).entries == store.read(key(1)) == [("a", data(1)), ("b", data(1))]
    assert min(stored.used for stored in store.entries()) > time.time() - 500
    assert store.use(key(2)) == ([], False)


@pytest.mark.parametrize("mode", [0o755, 0o775])
@pytest.mark.parametrize("depth", range(4))
def test_entries_are_private_if_no_other_user_can_write_on_the_way_to_them(tmp_path, depth, mode):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    way = [path(tmp_path, 1), *path(tmp_path, 1).parents][:4]
    for place in way:
        place.chmod(0o755)
    way[depth].chmod(mode)
    assert store.use(key(1)).is_private is store.is_private(key(1)) is (mode == 0o755)


def test_using_a_key_opens_its_folder_once(tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    opened = []
    enter = folder_module.Folder.enter
    monkeypatch.setattr(
        folder_module.Folder, "enter", lambda self, name: opened.append(name) or enter(self, name)
    )
    GuardedStore(store, timeout=60.0).use(key(1))
    assert opened == [key(1)[:2], key(1)]


def test_a_file_too_large_for_an_entry_is_foreign(tmp_path):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    with path(tmp_path, 1, "b").open("wb") as file:
        file.truncate(1 << 40)
    assert store.read(key(1)) == [("a", data(1))]


def test_a_pipe_in_place_of_an_entry_does_not_hang_the_reader(tmp_path):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    os.mkfifo(path(tmp_path, 1, "b"))
    assert store.read(key(1)) == [("a", data(1))]
    with folder_module.Folder(str(path(tmp_path, 1).parent)) as folder:
        assert folder.read("b.plan", 1000) is None


def test_a_writer_whose_folder_is_removed_under_it_makes_it_again(tmp_path, monkeypatch):
    store = DirectoryStore(tmp_path)
    create = folder_module.Folder.create
    removed = []

    def create_late(self, name):
        if len(removed) < 5:
            removed.append(name)
            shutil.rmtree(path(tmp_path, 1).parent)
        return create(self, name)

    monkeypatch.setattr(folder_module.Folder, "create", create_late)
    store.write(key(1), "a", data(1))
    assert len(removed) == 5
    assert store.read(key(1)) == [("a", data(1))]


def test_a_writer_whose_folder_is_always_removed_gives_up(tmp_path, monkeypatch):
    def create_never(self, name):
        raise FileNotFoundError(2, "No such file or directory", name)

    monkeypatch.setattr(folder_module.Folder, "create", create_never)
    with pytest.raises(StoreError, match="writing failed: No such file or directory"):
        DirectoryStore(tmp_path).write(key(1), "a", data(1))


def test_a_folder_in_the_store_is_told_as_one(tmp_path, monkeypatch):
    def read_only(self, name):
        raise OSError(30, "Read-only file system", name)

    monkeypatch.setattr(folder_module.Folder, "make", read_only)
    with pytest.raises(StoreError) as caught:
        DirectoryStore(tmp_path).write(key(1), "a", data(1))
    told = f"{tmp_path}: writing failed: Read-only file system (at {key(1)[:2]} in it)"
    assert str(caught.value).startswith(told)


def test_a_limit_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="`max_bytes` must be at least 1, not -5"):
        DirectoryStore(tmp_path, max_bytes=-5)


def calls_of(action, monkeypatch):
    """How often the action calls each function of `os`, and how many directory entries it sees."""
    counts = dict.fromkeys((*CALLS, "seen"), 0)

    class Counted:
        def __init__(self, scan):
            self.scan = scan

        def __enter__(self):
            self.scan.__enter__()
            return self

        def __exit__(self, *error):
            return self.scan.__exit__(*error)

        def __iter__(self):
            for found in self.scan:
                counts["seen"] += 1
                yield found

    def counting(name, function):
        def counted(*args, **options):
            counts[name] += 1
            result = function(*args, **options)
            return Counted(result) if name == "scandir" else result

        return counted

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        action()
    return counts


@pytest.fixture
def quick_path(tmp_path):
    """A directory in memory where there is one: for very many files a disk takes minutes."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path
    ) as name:
        yield Path(name)


def test_no_call_sees_more_of_a_directory_with_more_entries(quick_path, monkeypatch):
    def use(store):
        def action():
            assert store.read(key(5)) == [("a", data(5))]
            assert store.read(key(5)[:2] + "f" * 30) == []
            store.touch(key(5), "a")
            store.write(key(5), "a", data(5))

        return action

    store = DirectoryStore(quick_path, max_bytes=1 << 40)
    for number in range(10):
        store.write(key(number), "a", data(number))
    few = calls_of(use(store), monkeypatch)
    for number in range(10, 20_000):
        folder = f"{quick_path}/{key(number)[:2]}/{key(number)}"
        try:
            os.mkdir(folder)
        except FileNotFoundError:
            os.makedirs(folder)
        os.close(os.open(f"{folder}/a.plan", os.O_CREAT | os.O_WRONLY))
    assert calls_of(use(store), monkeypatch) == few
    assert few["open"] > 0
    assert few["seen"] == 1
