"""Files that can't be written are named before the work, and cost nothing else when it is done."""

import errno
import os
import sys

import pytest

from fastplan.cli.errors import CommandError, message
from fastplan.cli.output import check_outputs, check_replaced
from fastplan.spec.read import read_spec
from fastplan.spec.write import write_spec
from tests.cli.command import ClosedPipe, call
from tests.ett.runs import Rank

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
        ("-", "give the name of a file, or /dev/stdout to print it"),
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
    fill_the_disk(monkeypatch)
    for option, old in (
        ("-o", '{"format": "fastplan sharding plan"}'),
        ("--html", "<!doctype html>"),
    ):
        (folder / "plan.html").write_text(old)
        code, out, error = call(capsys, "plan", "model.yaml", *ON_H100, option, "plan.html")
        assert code == 1
        assert "1 table, 1.9 GiB of weights, 8 ranks" in out and "written" not in out
        assert error == (
            "fastplan: error: plan.html: No space left on device; free some space, or write "
            "elsewhere\n"
        )
        assert (folder / "plan.html").read_text() == old


def test_a_full_disk_behind_stdout_is_told_without_a_name():
    told = message(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert told == "No space left on device; free some space, or write elsewhere"


def test_a_device_is_written_to_and_stays_one(capsys):
    code, out, _ = call(capsys, "plan", "model.yaml", *ON_H100, "-o", os.devnull)
    assert (code, f"written: {os.devnull}" in out) == (0, True)
    assert not os.path.isfile(os.devnull)


@pytest.fixture
def inputs(folder, monkeypatch):
    """Files that commands read although their command lines don't name them."""
    (folder / "lab.yaml").write_text("skus:\n  lab: {like: h100}\n")
    monkeypatch.setenv("FASTPLAN_SKUS", "lab.yaml")
    (folder / "topology.yaml").write_text(f"topology: {{sku: lab, world_size: 8}}\n{SPEC}")
    (folder / "sweep.yaml").write_text("models: [model.yaml]\nskus: [h100]\nworld_sizes: [8]\n")
    Rank(folder / "runs").do("plan", 4.0).steps(1, 20, 1.0).recorder.stop()
    (record,) = (folder / "runs").iterdir()
    record.rename(folder / "runs" / "a.ett.jsonl")
    return folder


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("plan", "topology.yaml", "-o", "lab.yaml"), "a plan file"),
        (("plan", "topology.yaml", "--html", "lab.yaml"), "an HTML page"),
        (
            ("export", "pkg:build", "--sku", "lab", "-o", "lab.yaml"),
            "a spec that `fastplan export` wrote",
        ),
        (("precompute", "sweep.yaml", "--html", "model.yaml"), "an HTML page"),
        (("ett", "report", "runs", "--html", "runs/a.ett.jsonl"), "an HTML page"),
        (("ett", "report", "runs", "--trace", "runs/a.ett.jsonl"), "a Chrome trace"),
        (("ett", "diff", "runs", "runs", "--html", "runs/a.ett.jsonl"), "an HTML page"),
        (("ett", "interval", "--from", "runs", "--html", "runs/a.ett.jsonl"), "an HTML page"),
        (("ett", "fleet", "runs", "--html", "runs/a.ett.jsonl"), "an HTML page"),
        (("ett", "fleet", "runs", "--parquet", "runs/a.ett.jsonl"), "a Parquet file"),
        (("calibrate", "--nproc", "1", "-o", "lab.yaml"), "a SKU file of `fastplan calibrate`"),
        (
            ("calibrate", "--nproc", "1", "-o", "new.yaml", "--points", "runs/a.ett.jsonl"),
            "measurements of `fastplan calibrate`",
        ),
    ],
    ids=lambda given: " ".join(given[:2] + given[-2:]) if isinstance(given, tuple) else "",
)
def test_no_output_replaces_a_file_of_another_kind(capsys, inputs, words, kind):
    before = (inputs / words[-1]).read_bytes()
    code, out, error = call(capsys, *words)
    assert (code, out) == (1, "")
    assert error == (
        f"fastplan: error: `{words[-1]}` can't be written: it exists and is not {kind}; choose "
        "another name or remove it\n"
    )
    assert (inputs / words[-1]).read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "model.yaml", *ON_H100, "-o", "plan.json", "--html", "plan.html"),
        ("ett", "report", "runs", "--html", "ett.html", "--trace", "trace.json"),
    ],
    ids=lambda words: words[0],
)
def test_earlier_and_empty_outputs_are_replaced(capsys, inputs, words):
    (inputs / words[-1]).touch()
    assert call(capsys, *words)[0] == 0
    assert (inputs / words[-1]).stat().st_size > 0
    assert call(capsys, *words)[0] == 0


@pytest.mark.parametrize("name", ["spec.yaml", "spec.json"])
def test_an_earlier_export_is_replaced(name):
    write_spec(read_spec("model.yaml"), name)
    check_replaced(spec=name)


@pytest.mark.parametrize("option", ["--html", "--parquet"])
def test_no_output_of_a_fleet_is_its_database(capsys, inputs, option):
    pytest.importorskip("duckdb")
    words = ("ett", "fleet", "runs", "--db", "fleet.db", option, "fleet.db")
    for _ in ("a new database", "the same database"):
        code, _, error = call(capsys, *words)
        assert (code, error) == (1, f"fastplan: error: `fleet.db` can't be written: {READ}\n")
        assert call(capsys, *words[:-2])[0] == 0


def test_a_plan_is_not_written_to_a_file_called_minus(capsys, folder):
    code, _, error = call(capsys, "plan", "model.yaml", *ON_H100, "-o", "-")
    assert code == 1
    assert "-o takes the name of a file, not `-`; --json prints the plan" in error
    assert not (folder / "-").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "model.yaml", *ON_H100, "-o", "one", "--html", "two"),
        ("plan", "model.yaml", *ON_H100, "--json", "-o", "one", "--html", "two"),
        ("ett", "report", "runs", "--html", "one", "--trace", "two"),
    ],
    ids=" ".join,
)
def test_files_are_written_although_nobody_reads_the_report(capsys, monkeypatch, inputs, words):
    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    code, _, error = call(capsys, *words)
    assert (code, error) == (141, "")
    assert (inputs / "one").stat().st_size > 0
    assert (inputs / "two").stat().st_size > 0
