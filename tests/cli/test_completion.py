"""Completion scripts, tried in the shells that are here."""

import shutil
import subprocess

import pytest

from fastplan.cli import completion_scripts
from fastplan.cli.commands import COMMANDS
from fastplan.cli.completion import Node, Value, nodes
from tests.cli.command import call

BASH = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_fastplan
printf '%s\\n' "${COMPREPLY[@]}"
"""
# A command line with everything there is.
EVERYTHING = [
    Node((), "", {"--help": "shows help"}, {}, [], {"cut": "cuts it", "join": "joins [both]: all"}),
    Node(("cut",), "cuts it", {"--size": "it's a size"}, {"--size": Value(("s", "m"))}, []),
    Node(("join",), "joins", {"--into": "where", "-o": ""}, {"--into": Value(path=True)}, []),
]
EVERYTHING[1].arguments = [Value(path=True), Value(("all",))]
EVERYTHING[2].below = {"two": "joins two"}
EVERYTHING.append(Node(("join", "two"), "joins two", {"-n": "count"}, {"-n": Value()}, []))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("plan one.json", "request.json"):
        (tmp_path / name).write_text("")
    (tmp_path / "plans").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_bash(script, folder, *words):
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    (folder / ".script").write_text(script)
    ended = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", folder / ".script", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    assert ended.stderr == ""
    return sorted(filter(None, ended.stdout.split("\n")))


@pytest.fixture
def complete(folder):
    """What bash offers after the words, for fastplan as it is."""
    script = completion_scripts.bash(nodes())
    return lambda *words: in_bash(script, folder, "fastplan", *words)


def test_commands_are_completed(complete):
    assert complete("") == sorted(command.name for command in COMMANDS)
    assert complete("doc") == ["doctor"]
    assert complete("nothing-like-it") == []


def test_options_before_the_command_are_skipped(complete):
    assert complete("--debug", "doc") == ["doctor"]
    assert complete("--v") == ["--version"]


def test_actions_and_their_options_are_completed(complete):
    assert complete("cache", "") == ["ls", "prune", "show", "verify", "why-miss"]
    assert complete("cache", "pr") == ["prune"]
    assert "--max-age" in complete("cache", "prune", "--")
    assert complete("cache", "ls", "--max") == []


def test_choices_are_completed(complete):
    assert complete("completion", "") == ["bash", "fish", "zsh"]


def test_paths_are_completed_where_a_path_belongs(complete):
    assert complete("cache", "why-miss", "p") == ["plan one.json", "plans"]
    assert complete("cache", "ls", "--cache", "plans") == ["plans"]
    assert complete("cache", "ls", "--cache", "=", "plans") == ["plans"]
    assert "plans" in complete("cache", "ls", "--cache", "=")
    assert complete("doctor", "p") == []


def test_an_options_value_is_taken_for_no_action(complete):
    assert complete("cache", "ls", "--cache", "show", "--js") == ["--json"]
    assert complete("cache", "ls", "--cache", "=", "show", "--js") == ["--json"]
    assert complete("cache", "prune", "--max-age", "") == []


def test_every_command_and_action_is_a_place_with_its_options():
    places = {node.words: node for node in nodes()}
    assert {(command.name,) for command in COMMANDS} <= set(places)
    assert places["cache", "ls"].values["--cache"] == Value(path=True)
    assert places["cache", "ls"].options["--json"] == "entries as JSON"
    for node in places.values():
        assert {"--help", "--debug", "--no-color"} <= set(node.options)
        assert all((*node.words, name) in places for name in node.below)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(capsys, shell):
    code, out, err = call(capsys, "completion", shell)
    assert (code, err) == (0, "")
    assert out == getattr(completion_scripts, shell)(nodes())
    assert "fastplan" in out.splitlines()[0]


@pytest.mark.parametrize("made", [EVERYTHING, None], ids=["made up", "real"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_read_its_script(tmp_path, shell, made):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "script"
    script.write_text(getattr(completion_scripts, shell)(made or nodes()))
    subprocess.run([shell, "-n", script], check=True)


def test_bash_completes_a_mixed_command_line(folder):
    script = completion_scripts.bash(EVERYTHING)
    assert in_bash(script, folder, "fastplan", "cut", "--size", "") == ["m", "s"]
    assert in_bash(script, folder, "fastplan", "cut", "a") == ["all"]
    assert in_bash(script, folder, "fastplan", "cut", "r") == ["request.json"]
    assert in_bash(script, folder, "fastplan", "join", "--into", "r") == ["request.json"]
    assert in_bash(script, folder, "fastplan", "join", "two", "-n", "") == []


def test_zsh_is_told_of_values_actions_and_texts_with_signs_of_its_own():
    script = completion_scripts.zsh(EVERYTHING)
    assert "'--size[it'\\''s a size]:value:(s m)'" in script
    assert "'--into[where]:value:_files'" in script
    assert "two) _fastplan_join_two ;;" in script
    assert "'join:joins [both]: all'" in script


def test_fish_is_told_of_values_actions_and_texts_with_signs_of_its_own():
    lines = completion_scripts.fish(EVERYTHING).splitlines()
    cut = "complete -c fastplan -n '__fish_seen_subcommand_from cut'"
    assert f"{cut} -l size -x -a 's m' -d 'it\\'s a size'" in lines
    assert f"{cut} -F" in lines
    assert any("-s n -x" in line and "from join; and __fish" in line for line in lines)
    assert any("-l into -r -F -d 'where'" in line for line in lines)
