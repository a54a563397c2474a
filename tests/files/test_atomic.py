"""Files are written whole, and errors name them."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from fastplan.files.storage import replace_file
from tests.cli.command import environment


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "report"
    for content in (b"old", b"new"):
        replace_file(path, [content[:1], content[1:]])
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["report"]


def test_a_full_disk_leaves_the_old_file_and_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replace_file("report", [b"old"])

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: 'report'"):
        replace_file("report", [b"new"])
    assert (tmp_path / "report").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report"]


@pytest.mark.parametrize(
    ("path", "kind"), [("missing/report", FileNotFoundError), ("folder", IsADirectoryError)]
)
def test_a_place_that_is_none_is_named(tmp_path, monkeypatch, path, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(kind) as error:
        replace_file(path, [b"new"])
    assert error.value.filename == path
    assert os.listdir(tmp_path) == ["folder"]


def test_what_the_pieces_raise_is_left_as_it_is(tmp_path):
    def pieces():
        yield b"new"
        raise FileNotFoundError(errno.ENOENT, "gone", "another")

    with pytest.raises(FileNotFoundError) as error:
        replace_file(tmp_path / "report", pieces())
    assert error.value.filename == "another"
    assert os.listdir(tmp_path) == []


def test_stdout_is_written_to_where_it_is_a_pipe():
    code = "from fastplan.files.storage import replace_file; replace_file('/dev/stdout', [b'plan'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment())
    assert (ended.stdout, ended.stderr) == (b"plan", b"")


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        replace_file(path, [b"plan"])
        assert os.read(reader, 10) == b"plan"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o400])
def test_a_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "report"
    path.write_bytes(b"old")
    path.chmod(mode)
    replace_file(path, [b"new"])
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_draft_is_never_open_to_more_than_the_file(tmp_path):
    path = tmp_path / "report"
    path.write_bytes(b"old")
    path.chmod(0o600)

    def pieces():
        (draft,) = (file for file in tmp_path.iterdir() if file != path)
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600
        yield b"new"

    replace_file(path, pieces())


def test_a_new_file_has_the_permissions_that_the_process_gives(tmp_path):
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "report", [b"new"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640


def test_a_file_may_be_closed_to_writers(tmp_path):
    path = tmp_path / "bundle"
    before = os.umask(0o002)
    try:
        replace_file(path, [b"new"], others_write=False)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o660)
        replace_file(path, [b"newer"], others_write=False)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner_where_that_is_allowed(tmp_path):
    path = tmp_path / "report"
    path.write_bytes(b"old")
    os.chown(path, 1234, 5678)
    replace_file(path, [b"new"])
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


def test_a_group_that_cannot_be_kept_gets_no_more_than_all_others(tmp_path, monkeypatch):
    path = tmp_path / "report"
    path.write_bytes(b"old")
    path.chmod(0o664)

    def refuse(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(path, [b"new"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o664  # the group is the same
    os.chown(path, -1, os.getgid() + 1) if os.geteuid() == 0 else pytest.skip("needs a group")
    replace_file(path, [b"newer"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
