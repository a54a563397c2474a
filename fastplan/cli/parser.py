"""The parts that commands are declared with, on top of click.

click finds options and arguments among the words, converts them and completes them for shells.
Added here: declarations as help shows them (`option("-o, --output FILE", "the file to write")`),
help by sections with examples, errors that name the nearest word, options with several values
(`--plans a b`), and commands that are called with one `Args`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastplan.cli.errors import UsageError, unknown
from fastplan.cli.values import READERS
from fastplan.report.terminal import Style, escape_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any, Any]
else:
    _ParamType = click.ParamType

Decorator = Callable[[Any], Any]

_WIDTH = 98  # of help, on any terminal: a line for each option
_PATHS = {"FILE": "file", "WHERE": "file", "DIR": "dir"}
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


class Args(SimpleNamespace):
    """The values of a command's options and arguments, by name."""


class Value(_ParamType):
    """The value of an option or argument.

    Args:
        metavar: Its name in help. It decides how the value is read (see READERS), and a FILE, DIR
            or WHERE is completed as a path.
        read: Reads it instead; its ValueErrors say what is wrong.
        choices: The allowed words, if limited.
        complete: Returns further words for completion.
        aliases: Other names of allowed words.
    """

    def __init__(
        self,
        metavar: str,
        read: Callable[[str], Any] | None = None,
        choices: Sequence[str] = (),
        complete: Callable[[], Iterable[str]] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.name = metavar
        self.read = read or READERS.get(metavar, str)
        self.choices = choices
        self._complete = complete
        self._aliases = aliases or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # a default
        value = self._aliases.get(value, value)
        if self.choices and value not in self.choices:
            assert param is not None
            raise _UnknownWord(unknown(_shown_names(param)[0], value, self.choices), ctx, param)
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        words = [*self.choices, *(self._complete() if self._complete else ())]
        found = [CompletionItem(word) for word in words if word.startswith(incomplete)]
        if not found and (self.name in _PATHS or self._complete):  # a file may stand for a name
            found = [CompletionItem(incomplete, type=_PATHS.get(self.name, "file"))]
        return found


class _UnknownWord(click.BadParameter):
    """A word that is not one of the choices."""


class Option(click.Option):
    """An option as help shows it.

    Args:
        usage: `--json` for a flag, `-o, --output FILE` for an option with a value,
            `--plans FILE...` for one with several, `--to {a,b}` for one of these words.
        help: A line about it.
        name: Its name in Args, if not that of its last flag.
        section: The heading of help that it stands below.
        excludes: The flag of an option that can't be given with it.
        read, choices, complete, aliases: See Value.
        attributes: What else click.Option takes.
    """

    def __init__(
        self,
        usage: str,
        help: str,
        *,
        name: str | None = None,
        section: str = "options",
        excludes: str | None = None,
        **attributes: Any,
    ) -> None:
        *flags, last = usage.split(", ")
        flag, _, metavar = last.partition(" ")
        self.usage, self.section, self.excludes = usage, section, excludes
        self.spread = metavar.endswith("...")
        if metavar:
            kept = {key: attributes.pop(key, None) for key in ("read", "complete", "aliases")}
            choices = attributes.pop("choices", None) or _choices(metavar)
            attributes["type"] = Value(metavar.removesuffix("..."), choices=choices, **kept)
            attributes.setdefault("multiple", self.spread)
        else:
            attributes["is_flag"] = True
        names = [*flags, flag, name or flag.lstrip("-").replace("-", "_")]
        super().__init__(names, help=help, **attributes)


class Argument(click.Argument):
    """An argument as help shows it.

    Args:
        usage: `FILE`, `FILE...` for one or more, `[FILE]` for one or none, `[FILE...]` for any.
        help: A line about it.
        name: Its name in Args.
        choices, complete: See Value.
    """

    def __init__(self, usage: str, help: str, *, name: str, **attributes: Any) -> None:
        metavar = usage.strip("[].")
        super().__init__(
            [name],
            type=Value(metavar, **attributes),
            metavar=metavar,
            required=not usage.startswith("["),
            nargs=-1 if "..." in usage else 1,
        )
        self.usage, self.help = usage, help


def option(usage: str, help: str, **attributes: Any) -> Decorator:
    """Declares an option of a command; see Option."""
    return _declared(lambda: Option(usage, help, **attributes))


def argument(usage: str, help: str, **attributes: Any) -> Decorator:
    """Declares an argument of a command; see Argument."""
    return _declared(lambda: Argument(usage, help, **attributes))


def options(*decorators: Decorator, section: str | None = None) -> Decorator:
    """Combines several options into one decorator, with an optional heading in help."""

    def decorate(function: Any) -> Any:
        before = len(getattr(function, "__click_params__", ()))
        for decorator in reversed(decorators):
            function = decorator(function)
        for param in function.__click_params__[before:]:
            param.section = section or param.section
        return function

    return decorate


def _declared(make: Callable[[], click.Parameter]) -> Decorator:
    def decorate(function: Any) -> Any:
        # Where click.command looks for them; the last comes first, as decorators are applied.
        function.__dict__.setdefault("__click_params__", []).append(make())
        return function

    return decorate


class _BaseCommand(click.Command):
    """The base class of commands and groups."""

    _rest = ""  # of the usage line

    def __init__(self, *args: Any, examples: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings = {"terminal_width": _WIDTH, "allow_extra_args": True}
        self.examples = examples
        # Not click's, which looks for a translation of its help at every start.
        self._help = Option(
            "-h, --help",
            "show this help and exit",
            is_eager=True,
            expose_value=False,
            callback=_show_help,
        )
        self.params += [
            # Both are `main`'s, which looks for them among all words.
            Option("--debug", "show where an error comes from", expose_value=False),
            Option("--no-color", "no colours, as NO_COLOR=1 does", expose_value=False),
        ]

    def get_help_option(self, ctx: click.Context) -> Option:
        return self._help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        try:
            rest = super().parse_args(ctx, self._spread(args))
            self._check_exclusive(ctx)
        except click.UsageError as error:
            raise _usage_error(ctx, _text(error, self.get_params(ctx))) from error
        return rest

    def _spread(self, args: list[str]) -> list[str]:
        """Returns the words with `--plans a b` as `--plans=a --plans=b`.

        click would accept any word as an option's value, and write to a file `--json` if a name is
        missing.
        """
        taking = {
            name: param
            for param in self.params
            if isinstance(param, Option) and not param.is_flag
            for name in param.opts
        }
        words = list(args)
        found: list[str] = []
        while words:
            word = words.pop(0)
            if word == "--":
                return [*found, word, *words]
            if word not in taking:
                found.append(word)
                continue
            param = taking[word]
            if not words or _is_flag(words[0]):
                raise click.BadParameter("needs a value", param=param)
            found.append(f"{param.opts[-1]}={words.pop(0)}")
            while param.spread and words and not _is_flag(words[0]):
                found.append(f"{param.opts[-1]}={words.pop(0)}")
        return found

    def _check_exclusive(self, ctx: click.Context) -> None:
        given = {
            param.opts[0]: param
            for param in self.params
            if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        }
        for param in given.values():
            if isinstance(param, Option) and param.excludes in given:
                text = f"not allowed with argument {param.excludes}"
                raise click.BadParameter(text, ctx, param)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from textwrap import fill

        style = Style.of(sys.stdout)
        given = [param for param in self.params if isinstance(param, Option)]
        arguments = [param for param in self.params if isinstance(param, Argument)]
        needed = [param.usage.split(", ")[-1] for param in given if param.required]
        words = ["[OPTIONS]", *needed, *(param.usage for param in arguments), self._rest]
        formatter.write_usage(ctx.command_path, " ".join(words).rstrip(), prefix="usage: ")
        formatter.write(f"\n{fill(' '.join((self.help or '').split()), _WIDTH)}\n")
        sections: dict[str, list[tuple[str, str]]] = {
            "arguments": [(str(param.metavar), param.help or "") for param in arguments],
            "actions": self._actions(),
            "options": [(self._help.usage, self._help.help or "")],
        }
        for param in given[-2:] + given[:-2]:  # options of all commands come first
            sections.setdefault(param.section, []).append((param.usage, param.help or ""))
        for name, rows in sections.items():
            if rows:
                with formatter.section(style.paint(name, "bold")):
                    formatter.write_dl(rows, col_max=34)
        lines = (f"  {line}\n" for line in self.examples.strip().splitlines())
        formatter.write(f"\n{style.paint('examples', 'bold')}:\n{''.join(lines)}")

    def _actions(self) -> list[tuple[str, str]]:
        return []


class Command(_BaseCommand):
    """A command that does something: it is called with one Args and returns the exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            raise _usage_error(ctx, f"unknown argument `{escape_name(rest[0])}`")
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None
        return self.callback(Args(**ctx.params))


class Group(_BaseCommand, click.Group):
    """A command with actions, such as `cache` with `ls`."""

    kind = "ACTION"
    _rest = "ACTION ..."

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, no_args_is_help=False, **attributes)

    def action(self, name: str, help: str, examples: str) -> Decorator:
        """Declares an action; see command."""
        return self.command(name, cls=Command, help=help, examples=examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # as declared, not alphabetically

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = self.get_command(ctx, args[0])
        if found is None and not ctx.resilient_parsing:
            raise _usage_error(ctx, unknown(self.kind, args[0], self.list_commands(ctx)))
        return args[0], found, args[1:]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:  # the only one that no parse_args has converted
            raise _usage_error(ctx, f"{_REQUIRED}: {self.kind}") from error

    def _actions(self) -> list[tuple[str, str]]:
        return [(name, each.help or "") for name, each in self.commands.items()]


def command(name: str, examples: str) -> Decorator:
    """Declares a function as a command. Its docstring is the help.

    Args:
        name: The command's name.
        examples: A command line per line.
    """
    return click.command(name, cls=Command, examples=examples)


_REQUIRED = "the following arguments are required"


def _show_help(ctx: click.Context, param: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        print(ctx.get_help())
        ctx.exit()


def _usage_error(ctx: click.Context, text: str) -> UsageError:
    return UsageError(f"{text} (see `{ctx.command_path} --help`)")


def _text(error: click.UsageError, params: Iterable[click.Parameter]) -> str:
    """Returns the message for click's error."""
    if isinstance(error, click.NoSuchOption):
        from difflib import get_close_matches

        flags = [name for param in params for name in param.opts if name.startswith("-")]
        near = get_close_matches(error.option_name, flags, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        return f"unknown argument `{escape_name(error.option_name)}`{hint}"
    param = error.param if isinstance(error, click.BadParameter) else None
    if isinstance(error, _UnknownWord) or param is None:
        return error.message.rstrip(".")
    if isinstance(error, click.MissingParameter):
        return f"{_REQUIRED}: {'/'.join(_shown_names(param))}"
    return f"argument {'/'.join(_shown_names(param))}: {error.message}"


def _shown_names(param: click.Parameter) -> Sequence[str]:
    """Returns the names for the user: the flags, or the metavar."""
    return param.opts if isinstance(param, click.Option) else [str(param.metavar)]


def _choices(metavar: str) -> Sequence[str]:
    return metavar.strip("{}").split(",") if metavar.startswith("{") else ()


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and _NEGATIVE.fullmatch(word) is None
