"""Completion: the scripts, tried in the shells that are here, and what fastplan answers them."""

import os
import shutil
import subprocess
import sys

import pytest

from fastplan.cli.main import COMMANDS, COMPLETE, main
from tests.cli.command import call, environment

# `compopt` works while bash completes only; here it tells what it is asked for.
BASH = """
source "$1"; shift
compopt() { asked="$2"; }
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_fastplan_completion fastplan
printf '%s\\n' "${COMPREPLY[@]}" "$asked"
"""
PATHS, FOLDERS = ["default"], ["dirnames"]


@pytest.fixture
def complete(capsys, monkeypatch):
    """What fastplan answers the script of a shell after the words, the last of which is begun."""

    def answers(*words, shell="bash"):
        monkeypatch.setenv(COMPLETE, f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["fastplan", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        code, (out, err) = main(), capsys.readouterr()
        assert (code, err) == (0, "")
        return [line for line in out.splitlines() if line]

    return answers


def test_commands_are_completed(complete):
    assert complete("") == [f"plain,{name}" for name in COMMANDS]
    assert complete("doc") == ["plain,doctor"]
    assert complete("nothing-like-it") == []


def test_options_before_the_command_are_skipped(complete):
    assert complete("--debug", "doc") == ["plain,doctor"]
    assert complete("--v") == ["plain,--version"]


def test_actions_and_their_options_are_completed(complete):
    actions = ["ls", "show", "verify", "prune", "why-miss"]
    assert complete("cache", "") == [f"plain,{name}" for name in actions]
    assert complete("cache", "pr") == ["plain,prune"]
    assert "plain,--max-age" in complete("cache", "prune", "--")
    assert {"plain,--help", "plain,--debug"} <= {*complete("cache", "prune", "--")}
    assert complete("cache", "ls", "--max") == []


def test_choices_are_completed(complete):
    assert complete("completion", "") == ["plain,bash", "plain,zsh", "plain,fish"]
    assert complete("plan", "model.yaml", "--precision", "fp1") == ["plain,fp16"]
    assert complete("convert", "plan.json", "--to", "t") == ["plain,torcheasyrec"]


def test_paths_are_completed_where_a_path_belongs(complete):
    assert complete("plan", "mo") == ["file,mo"]
    assert complete("cache", "why-miss", "p") == ["file,p"]
    assert complete("bundle", "save", "--plans", "p") == ["file,p"]
    assert complete("cache", "ls", "--cache", "plans") == ["file,plans"]
    assert complete("cache", "ls", "--cache", "=", "plans") == ["file,plans"]
    assert complete("cache", "ls", "--cache", "=") == ["file,"]
    assert complete("ett", "report", "r") == ["dir,r"]
    assert complete("doctor", "p") == []


def test_hardware_is_completed_by_name(complete):
    assert "plain,h100" in complete("plan", "model.yaml", "--sku", "h1")
    assert "plain,h100" in complete("skus", "h1")


def test_an_options_value_is_taken_for_no_action(complete):
    assert complete("cache", "ls", "--cache", "show", "--js") == ["plain,--json"]
    assert complete("cache", "prune", "--max-age", "") == []


def test_zsh_and_fish_get_a_line_about_each_word(complete):
    assert complete("doc", shell="zsh") == ["plain", "doctor", COMMANDS["doctor"]]
    # fish gives the word that is begun in place of its number.
    assert complete("cache", "ls", "--js", shell="zsh")[2] == "entries as JSON"


def test_an_error_is_no_answer(monkeypatch, capsys):
    monkeypatch.setenv(COMPLETE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "fastplan")
    monkeypatch.setenv("COMP_CWORD", "none")
    assert (main(), *capsys.readouterr()) == (1, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_a_script_that_the_shell_can_read(tmp_path, capsys, shell):
    code, out, err = call(capsys, "completion", shell)
    assert (code, err) == (0, "")
    assert "fastplan" in out.splitlines()[0]
    assert f"{COMPLETE}={shell}_complete" in out
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(out)
    subprocess.run([shell, "-n", script], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["doc"], ["doctor"]),
        (["cache", "ls", "--js"], ["--json"]),
        (["plan", "mo"], PATHS),
        (["ett", "report", ""], FOLDERS),
        (["cache", "ls", "--cache", "=", "pl"], PATHS),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_completes_with_its_script(tmp_path, capsys, words, replies):
    (tmp_path / "script").write_text(call(capsys, "completion", "bash")[1])
    program = tmp_path / "fastplan"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fastplan "$@"\n')
    program.chmod(0o755)
    ended = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", tmp_path / "script", "fastplan", *words],
        capture_output=True,
        text=True,
        env=environment(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"),
        check=True,
    )
    assert ended.stderr == ""
    assert list(filter(None, ended.stdout.split("\n"))) == replies
