"""Files that can't be written are named before the work, and cost nothing else when it is done."""

import errno
import os

import pytest

from fastplan.cli.errors import CommandError, message
from fastplan.cli.output import check_outputs
from tests.cli.command import call

SPEC = "model: dlrm\ntables:\n  - {name: t0, rows: 4M, dim: 128}\n"
ON_H100 = ("--sku", "h100", "--world-size", "8")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(SPEC)
    (tmp_path / "folder").mkdir()
    return tmp_path


def fill_the_disk(monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("missing/plan.json", "there is no directory missing; create it first"),
        ("model.yaml/plan.json", "there is no directory model.yaml; create it first"),
        ("folder", "give the name of a file"),
        ("", "give the name of a file"),
    ],
)
def test_a_place_that_is_none_is_told(path, problem):
    with pytest.raises(CommandError) as error:
        check_outputs(None, "new.json", path)
    assert str(error.value) == f"`{path}` can't be written: {problem}"


def test_a_read_only_place_is_told(monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CommandError, match=r"`a\.json` .*: the directory \. is read-only"):
        check_outputs("a.json")
    check_outputs(os.devnull)


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "missing.yaml", *ON_H100, "-o", "folder"),
        ("plan", "missing.yaml", *ON_H100, "--html", "folder"),
        ("export", "no_such_package:build", "-o", "folder"),
        ("precompute", "missing.yaml", "--results", "folder"),
        ("inspect", "missing.json", "--html", "folder"),
        ("compare", "missing.json", "missing.json", "--html", "folder"),
        ("convert", "missing.json", "-o", "folder"),
        ("bundle", "save", "--plans", "missing.json", "-o", "folder"),
        ("ett", "report", "missing", "--html", "folder"),
        ("ett", "report", "missing", "--trace", "folder"),
        ("calibrate", "--nproc", "0", "-o", "folder/a/b.yaml"),
    ],
    ids=lambda words: " ".join((*words[:2], words[-2])),
)
def test_every_command_looks_there_before_anything_else(capsys, words):
    code, _, error = call(capsys, *words)
    assert code == 1
    assert "can't be written" in error


@pytest.fixture
def plan(capsys):
    assert call(capsys, "plan", "model.yaml", *ON_H100, "--quiet", "-o", "plan.json")[0] == 0
    return "plan.json"


READ = "the command reads that file; choose another output"
TWICE = "two outputs have that name; give each its own"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("plan", "model.yaml", *ON_H100, "-o", "new", "--html", "./new"), TWICE),
        (("plan", "model.yaml", *ON_H100, "-o", "model.yaml"), READ),
        (("plan", "model.yaml", *ON_H100, "-o", "folder/../model.yaml"), READ),
        (("plan", "model.yaml", *ON_H100, "--html", "link.yaml"), READ),
        (("plan", "model.yaml", *ON_H100, "--previous", "plan.json", "-o", "plan.json"), READ),
        (("plan", "model.yaml", "--sku", "skus.yaml:mine", "-o", "skus.yaml"), READ),
        (("convert", "plan.json", "--to", "torcheasyrec", "-o", "plan.json"), READ),
        (("inspect", "plan.json", "--html", "plan.json"), READ),
        (("compare", "plan.json", "plan.json", "--html", "plan.json"), READ),
        (("export", "pkg:build", "--sku", "skus.yaml", "-o", "skus.yaml"), READ),
        (("bundle", "save", "--plans", "plan.json", "-o", "plan.json"), READ),
        (("precompute", "model.yaml", "--results", "model.yaml"), READ),
        (("ett", "report", "folder", "--html", "new", "--trace", "new"), TWICE),
        (("calibrate", "--nproc", "1", "-o", "new.yaml", "--points", "new.yaml"), TWICE),
        (("calibrate", "--nproc", "1", "--model", "model.yaml", "-o", "model.yaml"), READ),
    ],
    ids=lambda given: " ".join((given[0], *given[-2:])) if isinstance(given, tuple) else "",
)
def test_no_output_destroys_an_input_or_another_output(capsys, folder, plan, words, problem):
    (folder / "link.yaml").symlink_to("model.yaml")
    (folder / "skus.yaml").write_text("mine: {like: h100}\n")
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    code, out, error = call(capsys, *words)
    assert (code, out) == (1, "")
    assert error == f"fastplan: error: `{words[-1]}` can't be written: {problem}\n"
    after = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    assert after == before


def test_a_device_takes_two_outputs(capsys):
    words = ("-o", os.devnull, "--html", os.devnull)
    assert call(capsys, "plan", "model.yaml", *ON_H100, *words)[0] == 0


def test_a_plan_that_finds_a_full_disk_is_still_shown(capsys, monkeypatch, folder):
    (folder / "plan.html").write_text("old")
    fill_the_disk(monkeypatch)
    for option in ("-o", "--html"):
        code, out, error = call(capsys, "plan", "model.yaml", *ON_H100, option, "plan.html")
        assert code == 1
        assert "1 table, 1.9 GiB of weights, 8 ranks" in out and "written" not in out
        assert error == (
            "fastplan: error: plan.html: No space left on device; free some space, or write "
            "elsewhere\n"
        )
    assert (folder / "plan.html").read_text() == "old"


def test_a_full_disk_behind_stdout_is_told_without_a_name():
    told = message(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told == "No space left on device; free some space, or write elsewhere"


def test_a_device_is_written_to_and_stays_one(capsys):
    code, out, _ = call(capsys, "plan", "model.yaml", *ON_H100, "-o", os.devnull)
    assert (code, f"written: {os.devnull}" in out) == (0, True)
    assert not os.path.isfile(os.devnull)
