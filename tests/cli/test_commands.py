"""Every command keeps to the frame."""

import contextlib
import re
import shlex

import pytest

from fastplan.cli.main import COMMANDS, EXAMPLES, GROUPS, load, main
from fastplan.cli.parser import Args


def test_names_are_unique_and_lines_short():
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    for help in COMMANDS.values():
        assert "\n" not in help
        assert len(help) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_and_examples(name):
    command = load(name)
    assert command.name == name
    assert command.help.strip()
    assert all(line.strip() for line in command.examples.strip().splitlines())
    assert f"fastplan {name}" in command.examples
    assert f"fastplan {name}" in EXAMPLES


@pytest.mark.parametrize("name", COMMANDS)
def test_its_help_ends_with_its_examples(capsys, name):
    assert main((name, "--help")) == 0
    out = capsys.readouterr().out
    shown = out.partition("\nexamples:\n")[2]
    assert shown.splitlines() == [f"  {line}" for line in load(name).examples.strip().splitlines()]


def example_lines():
    shown = EXAMPLES.strip().splitlines()
    shown += [line for name in COMMANDS for line in load(name).examples.strip().splitlines()]
    return list(dict.fromkeys(shown))


@pytest.mark.parametrize("line", example_lines())
def test_its_examples_can_be_parsed(monkeypatch, line):
    # Variables of a scheduler: a job's number, and how many there are.
    line = re.sub(r"\$\{?\w+_(ID|RANK)\}?", "0", line)
    line = re.sub(r"\$\{?[A-Z_]+\}?", "16", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="()<>|&;")
    lexer.whitespace_split = True
    words = list(lexer)
    words = words[words.index("fastplan") + 1 :]
    for end in (">", "|", "&&", ")"):
        with contextlib.suppress(ValueError):
            words = words[: words.index(end)]
    given = []
    command = load(words[0])
    for each in getattr(command, "commands", {"": command}).values():
        monkeypatch.setattr(each, "callback", lambda args: given.append(args) or 0)
    assert main(words) == 0
    assert [type(args) for args in given] == [Args]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_all_commands_have_are_there(name):
    command = load(name)
    for each in (command, *getattr(command, "commands", {}).values()):
        assert {"--debug", "--no-color"} <= {flag for param in each.params for flag in param.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_is_told_in_one_line(capsys, name):
    main((name, "--help"))
    told = capsys.readouterr().out.partition("\noptions:\n")[2].partition("\nexamples:\n")[0]
    assert told
    assert not [line for line in told.splitlines() if line.startswith(" " * 20)]
