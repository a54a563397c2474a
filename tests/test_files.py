"""Files are written whole, and errors name them."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from fastplan.files import replace_file
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
    code = "from fastplan.files import replace_file; replace_file('/dev/stdout', [b'plan'])"
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
