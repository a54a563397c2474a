"""A directory with anything wrong with it: planted links, no rights, no space, no more there."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastplan.cache.entry import BadEntry, decode
from fastplan.cache.stores import DirectoryStore, StoreError
from fastplan.cache.stores import folder as folder_module
from tests.cache.samples import data, key

SECRET = b"not for the cache"


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def planted(request, tmp_path, monkeypatch):
    """A store with one entry, and a folder outside of it with a file that looks like another."""
    monkeypatch.setattr(folder_module, "_DESCRIPTORS", request.param)
    outside = tmp_path / "outside"
    for folder in (outside, outside / key(1), outside / key(1)[:2] / key(1)):
        folder.mkdir(parents=True)
        (folder / "a.plan").write_bytes(SECRET)
        os.utime(folder / "a.plan", (0, 0))
    store = DirectoryStore(tmp_path / "plans")
    store.write(key(2), "a", data(2))
    return store, tmp_path / "plans", outside


def contents(folder):
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime)
        for file in folder.rglob("*")
        if file.is_file()
    }


@contextmanager
def ordinary_user():
    """Root may write anywhere, so a test of rights must not run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def open_tmp_path():
    """A temporary directory that other users can enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("level", ["prefix", "key"])
def test_a_link_in_place_of_a_folder_is_never_followed(planted, level):
    store, root, outside = planted
    before = contents(outside)
    if level == "prefix":
        (root / key(1)[:2]).symlink_to(outside, target_is_directory=True)
    else:
        (root / key(1)[:2]).mkdir(exist_ok=True)
        (root / key(1)[:2] / key(1)).symlink_to(outside, target_is_directory=True)
    for call in (
        lambda: store.read(key(1)),
        lambda: store.write(key(1), "a", data(1)),
        lambda: store.delete(key(1), "a"),
        lambda: store.touch(key(1), "a"),
    ):
        with pytest.raises(StoreError, match="link or file instead of a folder"):
            call()
    assert list(store.keys()) == [key(2)]
    DirectoryStore(root, max_bytes=1).sweep()
    assert contents(outside) == before


def test_a_link_in_place_of_an_entry_is_never_followed(planted):
    store, root, outside = planted
    before = contents(outside)
    link = root / key(1)[:2] / key(1) / "a.plan"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside / "a.plan")
    assert store.read(key(1)) == []
    assert list(store.keys()) == [key(2)]
    store.touch(key(1), "a")
    DirectoryStore(root, max_bytes=1).sweep()
    store.write(key(1), "a", data(1))
    assert not link.is_symlink()
    assert store.read(key(1)) == [("a", data(1))]
    link.unlink()
    link.symlink_to(outside / "a.plan")
    store.delete(key(1), "a")
    assert not link.is_symlink()
    assert contents(outside) == before


def test_the_root_itself_may_be_a_link(planted, tmp_path):
    _, root, _ = planted
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    assert DirectoryStore(tmp_path / "link").read(key(2)) == [("a", data(2))]


def test_a_directory_that_vanishes_is_empty_and_comes_back_with_the_next_write(planted):
    store, root, _ = planted
    root.rename(root.with_name("moved"))
    assert store.read(key(2)) == []
    assert list(store.keys()) == []
    assert store.sweep() == 0
    store.touch(key(2), "a")
    store.delete(key(2), "a")
    store.write(key(3), "a", data(3))
    assert store.read(key(3)) == [("a", data(3))]


def test_a_file_in_place_of_the_directory_is_a_failure_and_no_miss(planted):
    _, root, _ = planted
    store = DirectoryStore(root / key(2)[:2] / key(2) / "a.plan")
    for call in (
        lambda: store.read(key(1)),
        lambda: store.write(key(1), "a", data(1)),
        lambda: list(store.keys()),
    ):
        with pytest.raises(StoreError, match=r"Not a directory|File exists"):
            call()


def test_a_directory_that_can_only_be_read_gives_hits_and_tells_the_way_out(open_tmp_path):
    store = DirectoryStore(open_tmp_path)
    store.write(key(1), "a", data(1))
    with ordinary_user():
        # For a user who is not root the folders need to lose the right to write.
        if os.stat(open_tmp_path).st_uid == os.geteuid():
            for folder in (open_tmp_path, *open_tmp_path.rglob("*")):
                folder.chmod(0o555)
        assert store.read(key(1)) == [("a", data(1))]
        store.touch(key(1), "a")
        for call in (
            lambda: store.write(key(1), "a", data(2)),
            lambda: store.write(key(2), "a", data(2)),
            lambda: store.delete(key(1), "a"),
        ):
            with pytest.raises(StoreError, match=r"Permission denied.*choose a directory with"):
                call()
        assert store.read(key(1)) == [("a", data(1))]
        if os.stat(open_tmp_path).st_uid == os.geteuid():
            for folder in (open_tmp_path, *open_tmp_path.rglob("*")):
                folder.chmod(0o755)


def test_a_sweep_leaves_what_it_may_not_remove(open_tmp_path):
    store = DirectoryStore(open_tmp_path, max_bytes=1 << 20)
    for number in range(3):
        store.write(key(number), "a", data(number))
    if os.geteuid() != 0:
        pytest.skip("needs files of another user")
    os.chmod(open_tmp_path / key(0)[:2] / key(0), 0o700)
    with ordinary_user():
        assert DirectoryStore(open_tmp_path, max_bytes=1).sweep() == 0
        assert sorted(store.keys()) == sorted([key(1), key(2)])


def test_an_entry_without_the_right_to_read_it_is_a_failure_unless_others_can_be_read(
    open_tmp_path,
):
    store = DirectoryStore(open_tmp_path)
    for name in ("a", "b"):
        store.write(key(1), name, data(1))
        os.chmod(open_tmp_path / key(1)[:2] / key(1) / f"{name}.plan", 0)
        store.write(key(2), name, data(2))
    os.chmod(open_tmp_path / key(2)[:2] / key(2) / "a.plan", 0)
    with ordinary_user():
        with pytest.raises(StoreError, match="Permission denied"):
            store.read(key(1))
        assert store.read(key(2)) == [("b", data(2))]


def test_a_full_disk_is_a_failure_that_leaves_the_old_entry(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    try:
        store = DirectoryStore(disk)
        store.write(key(1), "a", data(1))
        for number in (1, 2):
            with pytest.raises(StoreError, match="No space left on device; free some space"):
                store.write(key(number), "a", bytes(1 << 20))
        assert store.read(key(1)) == [("a", data(1))]
        assert store.read(key(2)) == []
        store.write(key(3), "a", data(3))
        assert store.read(key(3)) == [("a", data(3))]
        assert not list(disk.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("function", ["mkdir", "open", "write", "fsync", "close", "replace"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_whatever_fails_in_a_write_the_old_entry_stays(tmp_path, monkeypatch, function, error):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    real = getattr(os, function)

    def failing(*args, **options):
        if function == "close":
            real(*args)
        if function == "write":
            real(args[0], args[1][:10])
        if function == "open" and not args[1] & os.O_CREAT:
            return real(*args, **options)
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, failing)
        with pytest.raises(StoreError, match=os.strerror(error)):
            store.write(key(1), "a", data(2))
    assert store.read(key(1)) == [("a", data(1))]
    assert not list(tmp_path.rglob("*.tmp"))


def test_short_writes_are_carried_on(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, rest: write(fd, rest[:7]))
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    assert store.read(key(1)) == [("a", data(1))]


def test_a_failing_sweep_is_a_warning_and_not_the_writers_error(tmp_path, monkeypatch, caplog):
    store = DirectoryStore(tmp_path, max_bytes=8)

    def failing():
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(store, "_survey", failing)
    store.write(key(1), "a", data(1))
    store.wait_for_sweep()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "sweeping failed: Input/output error" in caplog.text


# Kills itself before the n-th call that changes or opens anything, in a write half-way through it.
KILLED_WRITER = """
import os, signal, sys

from fastplan.cache.stores import DirectoryStore
from tests.cache.samples import data, key

left = int(sys.argv[2])


def deadly(function):
    def call(*args, **options):
        global left
        left -= 1
        if left == 0:
            if function is write:
                write(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)

    return call


write = os.write
store = DirectoryStore(sys.argv[1])
for name in ("open", "mkdir", "write", "fsync", "close", "replace"):
    setattr(os, name, deadly(getattr(os, name)))
store.write(key(1), "a", data(11))
store.write(key(2), "a", data(12))
"""


def test_a_process_killed_at_any_call_of_a_write_leaves_the_old_entry_or_the_new(tmp_path):
    seen = set()
    for count in range(1, 100):
        root = tmp_path / str(count)
        store = DirectoryStore(root)
        store.write(key(1), "a", data(1))
        ended = subprocess.run([sys.executable, "-c", KILLED_WRITER, root, str(count)], check=False)
        found = store.read(key(1)), store.read(key(2))
        assert found[0] in ([("a", data(1))], [("a", data(11))])
        assert found[1] in ([], [("a", data(12))])
        seen.add((found[0] == [("a", data(11))], bool(found[1])))
        store.write(key(1), "a", data(21))
        store.write(key(2), "a", data(22))
        assert store.read(key(1)) + store.read(key(2)) == [("a", data(21)), ("a", data(22))]
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
    assert ended.returncode == 0
    assert count > 20
    assert seen == {(False, False), (True, False), (True, True)}


def test_a_damaged_file_is_read_as_it_is_and_refused_by_the_entry(tmp_path):
    store = DirectoryStore(tmp_path)
    store.write(key(1), "a", data(1))
    file = tmp_path / key(1)[:2] / key(1) / "a.plan"
    file.write_bytes(data(1)[:-1])
    ((_, found),) = store.read(key(1))
    with pytest.raises(BadEntry, match="truncated"):
        decode(found)
