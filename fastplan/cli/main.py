"""The command's way in: finds the command, runs it, and turns what happens into an exit code."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress

from fastplan import __version__
from fastplan.cli.commands import COMMANDS, GROUPS
from fastplan.cli.errors import FAILED, INTERRUPTED, OK, PIPE_CLOSED, UsageError, message
from fastplan.cli.parser import Parser, add_common, command_parser, examples, unknown
from fastplan.report.names import escape_name


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code: 0 done or yes, 2 the answer is no,
    1 an error, which stderr tells in one line."""
    words = list(sys.argv[1:] if argv is None else argv)
    _take_any_text()
    try:
        code = _run(words)
        _flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _drop_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("\nfastplan: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if "--debug" in words:
            from traceback import format_exc

            for line in format_exc().splitlines():
                print(escape_name(line), file=sys.stderr)
        print(f"fastplan: error: {message(error)}", file=sys.stderr)
        return FAILED


def _run(words: list[str]) -> int:
    options, rest = _split(words)
    top = Parser(prog="fastplan", add_help=False)
    add_common(top)
    top.add_argument("--version", action="store_true")
    top.add_argument("-h", "--help", action="store_true")
    args = top.parse_args(options, Namespace(debug=False, no_color=False))
    if args.version:
        print(f"fastplan {__version__}")
        return OK
    if args.help or not rest:
        print(overview())
        return OK
    return _run_command(rest, args)


def _run_command(words: list[str], args: Namespace) -> int:
    by_name = {command.name: command for command in COMMANDS}
    if words[0] not in by_name:
        raise UsageError(f"{unknown('command', words[0], by_name)} (see `fastplan --help`)")
    parser, module = command_parser(by_name[words[0]])
    try:
        parser.parse_args(words[1:], args)
    except SystemExit:  # after --help
        return OK
    if args.no_color:
        os.environ["NO_COLOR"] = "1"  # whoever writes to a stream looks there
    code: int = module.run(args)
    return code


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Options before the command, none of which takes a value; and the command with its own."""
    for i, word in enumerate(words):
        if not word.startswith("-"):
            return words[:i], words[i:]
    return words, []


def overview() -> str:
    """What `fastplan --help` shows."""
    wide = max(len(command.name) for command in COMMANDS)
    lines = [
        f"fastplan {__version__}: sharding plans for TorchRec, the same ones much sooner",
        "",
        "usage: fastplan COMMAND ...",
    ]
    for group in GROUPS:
        found = [command for command in COMMANDS if command.group == group]
        if found:
            lines += ["", group]
            lines += [f"  {command.name:<{wide}}  {command.help}" for command in found]
    lines += [
        "",
        "options:",
        "  --help      what the command does and takes, with examples",
        "  --debug     show where an error comes from",
        "  --no-color  no colours, as NO_COLOR=1 does",
        "  --version   the version, in place of a command",
        "",
        examples("\n".join(command.example for command in COMMANDS)),
        "",
        "exit codes: 0 done or yes, 1 error, 2 the answer is no, 130 interrupted (Ctrl-C)",
    ]
    return "\n".join(lines)


def _take_any_text() -> None:
    """Names that a stream's encoding can't express are escaped: never an error half-way.

    A stream that was closed by the caller is as good as one that nobody reads.
    """
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """While its errors can still be told."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
        raise


def _drop_output() -> None:
    """Else the interpreter would try to flush once more when it ends, and complain."""
    with suppress(OSError, ValueError):  # not a stream of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
