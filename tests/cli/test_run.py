"""`fastplan run`: what it hands over to torchrun."""

import os
import sys

import pytest

from fastplan.cli import run as command
from fastplan.cli.main import main
from fastplan.launch.__main__ import _expected_environment


class Replaced(BaseException):
    """Instead of another program in this process."""


@pytest.fixture
def started(monkeypatch):
    calls = []

    def execv(program, words):
        calls.append((program, words))
        raise Replaced

    monkeypatch.setattr(command.os, "execv", execv)
    return calls


def test_words_after_the_dashes_are_torchruns(started):
    with pytest.raises(Replaced):
        main(["run", "--", "--nproc-per-node=2", "--redirects", "3", "train.py", "--json", "-x"])
    words = ["--nproc-per-node=2", "--redirects", "3", "train.py", "--json", "-x"]
    assert started == [(sys.executable, [sys.executable, "-m", "fastplan.launch", *words])]


def test_modules_are_handed_over_one_by_one(started):
    with pytest.raises(Replaced):
        main(["run", "--preload", "a.b", "c", "--", "train.py"])
    assert started[0][1][3:] == ["--preload=a.b", "--preload=c", "train.py"]


def test_mistakes_are_named(capsys, monkeypatch, started):
    assert main(["run", "--preload", "a,b", "--", "train.py"]) == 1
    assert "--preload: 'a,b' is not the name of a module" in capsys.readouterr().err
    assert main(["run"]) == 1
    assert "required: ARGUMENT" in capsys.readouterr().err
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["run", "--", "train.py"]) == 1
    assert "torch is not installed" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize(
    ("words", "several"),
    [
        (["train.py"], False),
        (["--nproc-per-node=1", "train.py"], False),
        (["--nproc_per_node", "4", "train.py"], True),
        (["--nproc-per-node=gpu", "train.py"], True),
    ],
)
def test_the_server_gets_the_threads_that_torchrun_gives_workers(monkeypatch, words, several):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("PET_NPROC_PER_NODE", raising=False)
    assert _expected_environment(words).get("OMP_NUM_THREADS") == ("1" if several else None)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert _expected_environment(words)["OMP_NUM_THREADS"] == "3"
    assert os.environ["OMP_NUM_THREADS"] == "3"
