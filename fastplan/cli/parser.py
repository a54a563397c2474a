"""Parsers that fail and help alike, on every Python."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from textwrap import fill
from typing import Any, NoReturn

from fastplan.cli.commands import Command, load
from fastplan.cli.errors import UsageError
from fastplan.report.names import escape_name

Act = Callable[[argparse.Namespace], int]
AddAction = Callable[[str, Act, str, str], argparse.ArgumentParser]

_WIDTH = 98  # of help, wherever it is read: a line for each option


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageError, and which takes options in full only."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            formatter_class=partial(
                argparse.RawDescriptionHelpFormatter, width=_WIDTH, max_help_position=34
            ),
            allow_abbrev=False,
            **settings,
        )
        self.color = False  # of Python's own help, which knows no --no-color

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        for word in rest:
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, n=1)
            hint = f"; did you mean `{near[0]}`?" if near and word.startswith("-") else ""
            self.error(f"unknown argument `{escape_name(word)}`{hint}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            what = next(iter(action.option_strings), what)
            raise argparse.ArgumentError(None, unknown(what, value, map(str, action.choices)))


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Says that the word is not one of the known ones, and which it may have been meant to be."""
    names = list(known)
    near = get_close_matches(word, names, n=1, cutoff=0.5)
    way_out = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
    return f"unknown {what.lower()} `{escape_name(word)}`: {way_out}"


def cache_place(text: str) -> str:
    """The argument of --cache. An empty one is a variable that is not set, and must not become the
    cache that is used without the option."""
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "is empty; give a directory or URL, or leave the option out for the usual cache"
        )
    return text


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that all commands have, and their actions: what is not given there may have been
    given further left."""
    for name, told in (
        ("--debug", "show where an error comes from"),
        ("--no-color", "no colours, as NO_COLOR=1 does"),
    ):
        parser.add_argument(name, action="store_true", default=argparse.SUPPRESS, help=told)


def add_cache_choice(parser: argparse._ActionsContainer) -> None:
    """The options that name a plan cache, or none."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--cache",
        type=cache_place,
        metavar="WHERE",
        help="directory or URL of a plan cache; default: FASTPLAN_CACHE",
    )
    choice.add_argument("--no-cache", action="store_true", help="use no cache")


def add_actions(
    parser: argparse.ArgumentParser, *shared: Callable[[argparse.ArgumentParser], object]
) -> AddAction:
    """What adds an action to a command, whose `args.act` it then is.

    `shared` add the options that all of the command's actions have.
    """
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, act: Act, told: str, example: str) -> argparse.ArgumentParser:
        own = actions.add_parser(name, help=told, description=told, epilog=examples(example))
        own.set_defaults(act=act)
        for add_shared in (*shared, add_common):
            add_shared(own)
        return own

    return add


def command_parser(command: Command) -> tuple[Parser, Any]:
    """A command's parser and its module."""
    module = load(command)
    parser = Parser(
        prog=f"fastplan {command.name}",
        description=fill(" ".join(module.HELP.split()), _WIDTH),
        epilog=examples(module.EXAMPLES),
    )
    add_common(parser)
    module.add_arguments(parser)
    return parser, module


def examples(lines: str) -> str:
    """Command lines as they stand at the end of a help text."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines.strip().splitlines())])
