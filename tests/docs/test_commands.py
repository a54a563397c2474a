"""Command lines of the docs print what is shown below them."""

import re
import shlex
import subprocess

import pytest

from fastplan.torchrec.support.digest import torchrec_version
from tests.cli.command import ROOT, run
from tests.docs.blocks import DOCS, blocks

pytestmark = pytest.mark.skipif(
    torchrec_version() != "1.8.0", reason="keys are those of TorchRec 1.8.0"
)
SHARED = "/shared/plans"
CRITEO = ("plan", "bench.demo_model:criteo", "--batch-size", "8192", "--sku", "h100")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(page):
    """Command lines and what follows each, by page; those with nothing below only have to work."""
    found = []
    for text in blocks(page, ""):
        if text.startswith("$ "):
            for part in text.removeprefix("$ ").split("\n$ "):
                line, _, output = part.partition("\n")
                found.append((line, output))
    return found


def check(line, output, expected=0):
    words = shlex.split(line.replace(SHARED, "plans"))
    assert words[0] == "fastplan"
    ended = run(*words[1:], NO_COLOR="1")
    assert ended.returncode == expected, ended.stderr
    seconds = re.compile(r"; [\d.]+ m?s$", re.M)
    real, told = seconds.sub("", ended.stdout), seconds.sub("", output)
    head, dots, told = told.rpartition("...\n")
    assert not head
    assert real.endswith(told) if dots else real == told


def write_files(page, folder):
    """The YAML files of a page, each named in its first line."""
    for text in blocks(page, "yaml"):
        name = re.match(r"# (\S+)\n", text)
        if name:
            (folder / name[1]).write_text(text)


def test_precompute(folder):
    write_files("precompute.md", folder)
    (change,) = blocks("precompute.md", "bash")
    subprocess.run(change, shell=True, check=True)
    lines = shown("precompute.md")
    assert len(lines) == 3
    for line, output in lines:
        check(line, output)


def test_inspect_explain_and_compare(folder):
    write_files("inspect-and-compare.md", folder)
    for ranks in ("8", "16"):
        words = (*CRITEO, "--world-size", ranks, "--cache", "plans", "-o", f"{ranks}-ranks.json")
        ended = run(*words, "--quiet", PYTHONPATH=str(ROOT))
        assert ended.returncode == 0, ended.stderr
    inspect, *explain, compare = shown("inspect-and-compare.md")
    check(*inspect)
    for each in explain:
        check(*each)
    check(*compare, expected=2)


def test_replan(folder):
    write_files("replan.md", folder)
    (change,) = blocks("replan.md", "bash")
    subprocess.run(change, shell=True, check=True)
    lines = shown("replan.md")
    assert len(lines) == 3
    for line, output in lines:
        check(line, output or "...\n")


def test_two_dimensional(folder):
    write_files("two-dimensional.md", folder)
    (found,) = shown("two-dimensional.md")
    check(*found)


def test_ett_project_and_interval():
    for action in ("project", "interval"):
        (found,) = [each for each in shown("ett.md") if f"ett {action} --" in each[0]]
        check(*found)


def test_spec_files_are_planned(folder):
    (smallest,) = blocks("spec.md", "json")
    (folder / "model.json").write_text(smallest)
    line = shown("spec.md")[0][0]
    assert run(*shlex.split(line)[1:]).returncode == 0
    (folder / "plan.json").unlink()
    (code,) = blocks("spec.md", "python")
    exec(compile(code, "docs/spec.md", "exec"), {})
    assert (folder / "plan.json").exists()
    (full,) = blocks("spec.md", "yaml")
    (folder / "model.yaml").write_text(full)
    assert run("plan", "model.yaml", "--quiet").returncode == 0


def test_hardware_of_your_own(folder):
    (skus,) = blocks("hardware.md", "yaml")
    (folder / "lab.yaml").write_text(skus)
    assert "25" in run("skus", "lab.yaml:lab-h100").stdout
    ended = run("skus", "h100", FASTPLAN_SKUS="lab.yaml")
    assert "128 GiB" in ended.stdout


def test_no_page_has_grown_examples_that_nobody_runs():
    with_output = {
        path.name: sum(bool(output) for _, output in shown(path.name)) for path in DOCS.glob("*.md")
    }
    assert {page: count for page, count in with_output.items() if count} == {
        "bundle.md": 1,  # of a file that says when it was written
        "ett.md": 2,
        "inspect-and-compare.md": 4,
        "precompute.md": 3,
        "replan.md": 2,
        "two-dimensional.md": 1,
    }
