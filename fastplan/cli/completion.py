"""`fastplan completion`: scripts that let a shell complete fastplan's words."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastplan.cli.commands import COMMANDS
from fastplan.cli.errors import OK

HELP = """
Prints a script for a shell that completes fastplan's commands, options and files. It is made from
the commands as they are, so print it again after an update.
"""
EXAMPLES = """
source <(fastplan completion bash)
fastplan completion bash > ~/.local/share/bash-completion/completions/fastplan
fastplan completion zsh > "${fpath[1]}/_fastplan"
fastplan completion fish > ~/.config/fish/completions/fastplan.fish
"""
_PATHS = ("FILE", "DIR", "WHERE")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="%(choices)s"
    )


def run(args: Namespace) -> int:
    from fastplan.cli import completion_scripts

    script = getattr(completion_scripts, args.shell)(nodes())
    sys.stdout.write(script)
    return OK


@dataclass(frozen=True, slots=True)
class Value:
    """What may follow an option, or stand as an argument: words, a path, or anything."""

    words: tuple[str, ...] = ()
    path: bool = False


@dataclass(slots=True)
class Node:
    """A place on the command line: a command, or one of its actions."""

    words: tuple[str, ...]  # that lead here, after `fastplan`
    help: str
    options: dict[str, str] = field(default_factory=dict)  # flag -> help
    values: dict[str, Value] = field(default_factory=dict)  # flag -> what follows it
    arguments: list[Value] = field(default_factory=list)
    below: dict[str, str] = field(default_factory=dict)  # commands or actions -> help


def nodes() -> list[Node]:
    """Every place on the command line, outer ones first."""
    from fastplan.cli.parser import add_common, command_parser

    top = ArgumentParser(add_help=False)
    add_common(top)
    (root,) = _read((), "", top)
    root.options |= {"--help": "show the commands", "--version": "show the version"}
    root.below = {command.name: command.help for command in COMMANDS}
    found = [root]
    for command in COMMANDS:
        parser, _ = command_parser(command)
        found += _read((command.name,), command.help, parser)
    return found


def _read(words: tuple[str, ...], told: str, parser: ArgumentParser) -> Iterator[Node]:
    node = Node(words, told)
    inner: list[Node] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told_of = {choice.dest: choice.help or "" for choice in action._choices_actions}
            node.below = {name: told_of.get(name, "") for name in action.choices}
            for name, own in action.choices.items():
                inner += _read((*words, name), node.below[name], own)
        elif action.option_strings:
            for flag in action.option_strings:
                node.options[flag] = _help(action)
                if action.nargs != 0:
                    node.values[flag] = _value(action)
        else:
            node.arguments.append(_value(action))
    yield node
    yield from inner


def _value(action: argparse.Action) -> Value:
    choices = tuple(map(str, action.choices)) if action.choices is not None else ()
    return Value(choices, path=action.metavar in _PATHS)


def _help(action: argparse.Action) -> str:
    return "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
