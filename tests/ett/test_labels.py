"""Labels of a job: where they come from, and that nothing in them raises."""

import subprocess

import pytest

from fastplan import ett
from fastplan.ett.building import load
from fastplan.ett.labels import LABELS, MOST_LABELS, clean_labels, job_labels, parse_labels
from fastplan.ett.reading import read


class Raises(dict):
    def items(self):
        raise ValueError("no items")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    for name in ("GIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "SLURM_JOB_NAME", "JOB_NAME", LABELS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_arguments_win_over_the_environment(monkeypatch):
    monkeypatch.setenv(LABELS, "team=ads, model=dlrm,broken,=x,empty=")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    assert job_labels({"team": "feed"}) == {"team": "feed", "model": "dlrm", "job": "train"}
    assert parse_labels("a=b=c") == {"a": "b=c"}


def test_any_labels_become_short_texts():
    assert clean_labels({1: 2, ("a",): None, "x" * 500: "y" * 500, "": "z"}).keys() == {
        "1",
        "['a']",
        "x" * 199 + "…",
    }
    assert len(clean_labels({str(i): i for i in range(1000)})) == MOST_LABELS
    assert job_labels(Raises()) == job_labels(5) == {}


def test_the_revision_is_that_of_the_working_directory(tmp_path):
    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert "revision" not in job_labels()
    git("commit", "-q", "--allow-empty", "-m", "x")
    revision = git("rev-parse", "HEAD")
    assert job_labels()["revision"] == revision
    git("pack-refs", "--all")
    assert job_labels()["revision"] == revision
    git("checkout", "-q", "--detach")
    assert job_labels()["revision"] == revision
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/../../../etc/passwd")
    assert "revision" not in job_labels()


def test_labels_are_in_the_file_and_in_the_job(tmp_path):
    path = ett.start(tmp_path / "runs", labels={"team": "ads"})
    ett.step(0)
    ett.stop()
    assert read(path).identity.labels == {"team": "ads"}
    assert load(tmp_path / "runs").labels == {"team": "ads"}
