"""Every command keeps to the frame."""

import contextlib
import re
import shlex

import pytest

from fastplan.cli.commands import COMMANDS, GROUPS, load
from fastplan.cli.main import main
from fastplan.cli.parser import command_parser

BY_NAME = {command.name: command for command in COMMANDS}


def test_names_are_unique_and_lines_short():
    assert len(BY_NAME) == len(COMMANDS)
    for command in COMMANDS:
        assert command.group in GROUPS
        assert "\n" not in command.help
        assert len(command.help) <= 80


@pytest.mark.parametrize("name", BY_NAME)
def test_a_command_has_help_and_examples(name):
    module = load(BY_NAME[name])
    assert module.HELP.strip()
    assert all(line.strip() for line in module.EXAMPLES.strip().splitlines())
    assert f"fastplan {name}" in module.EXAMPLES


@pytest.mark.parametrize("name", BY_NAME)
def test_its_help_ends_with_its_examples(capsys, name):
    assert main((name, "--help")) == 0
    out = capsys.readouterr().out
    shown = out.partition("\nexamples:\n")[2]
    assert shown.splitlines() == [
        f"  {line}" for line in load(BY_NAME[name]).EXAMPLES.strip().splitlines()
    ]


def example_lines():
    return [
        pytest.param(command.name, line, id=line)
        for command in COMMANDS
        for line in dict.fromkeys([command.example, *load(command).EXAMPLES.strip().splitlines()])
    ]


@pytest.mark.parametrize(("name", "line"), example_lines())
def test_its_examples_can_be_parsed(name, line):
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
    assert words[0] == name
    parser, _ = command_parser(BY_NAME[name])
    parser.parse_args(words[1:])


@pytest.mark.parametrize("name", BY_NAME)
def test_options_that_all_commands_have_are_there(name):
    parser, _ = command_parser(BY_NAME[name])
    assert {"--debug", "--no-color", "--help"} <= set(parser._option_string_actions)


@pytest.mark.parametrize("name", BY_NAME)
def test_an_option_is_told_in_one_line(capsys, name):
    main((name, "--help"))
    told = capsys.readouterr().out.partition("\noptions:\n")[2].partition("\nexamples:\n")[0]
    assert told
    assert not [line for line in told.splitlines() if line.startswith(" " * 20)]
