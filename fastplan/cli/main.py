"""The entry point of the command line: runs a command and returns its exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from fastplan import __version__
from fastplan.cli.commands import COMMANDS, EXAMPLES, GROUPS, OPTIONS
from fastplan.cli.errors import FAILED, INTERRUPTED, OK, PIPE_CLOSED, message
from fastplan.report.names import escape_name
from fastplan.report.terminal import Style

COMPLETE = "_FASTPLAN_COMPLETE"  # set by the scripts of `fastplan completion`


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The words after `fastplan`; by default those of this process.

    Returns:
        The exit code: 0 done or yes, 2 the answer is no, 1 an error, with a one-line message on
        stderr.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    _escape_unencodable()
    if "--no-color" in words:
        os.environ["NO_COLOR"] = "1"  # read by everything that writes to a stream
    try:
        code = _run(words)
        _flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _discard_stdout()
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
    if COMPLETE in os.environ:
        from fastplan.cli.help import complete

        return complete(os.environ[COMPLETE])
    answer = _answer(words)  # without click, whose import takes longer than the answer
    if answer is not None:
        print(answer)
        return OK
    try:
        from click.exceptions import Exit
    except ImportError:
        if words[0] != "doctor":
            raise
        from fastplan.cli.doctor import diagnose

        return diagnose("--json" in words)
    from fastplan.cli.commands import top

    commands = top()
    try:
        with commands.make_context("fastplan", words) as context:
            code: int = commands.invoke(context)
            return code
    except Exit:  # after --help
        return OK


def _answer(words: list[str]) -> str | None:
    """Returns the output for options before the command, if they ask for one."""
    given = []
    for word in words:
        if not word.startswith("-"):
            break
        given.append("--help" if word == "-h" else word)
    if not OPTIONS.keys() >= set(given):
        return None
    if "--version" in given:
        return f"fastplan {__version__}"
    if "--help" in given or len(given) == len(words):
        return overview(Style.of(sys.stdout))
    return None


def overview(style: Style) -> str:
    """Returns the output of `fastplan --help`."""
    wide = max(map(len, COMMANDS))
    lines = [
        f"fastplan {__version__}: TorchRec's sharding plans, computed natively",
        "",
        "usage: fastplan COMMAND ...",
    ]
    for group, commands in GROUPS.items():
        lines += ["", style.paint(group, "bold")]
        lines += [f"  {name:<{wide}}  {help}" for name, help in commands.items()]
    lines += ["", f"{style.paint('options', 'bold')}:"]
    lines += [f"  {name:<10}  {help}" for name, help in OPTIONS.items()]
    lines += ["", f"{style.paint('examples', 'bold')}:"]
    lines += [f"  {line}" for line in EXAMPLES.strip().splitlines()]
    lines += [
        "",
        "exit codes: 0 done or yes, 1 error, 2 the answer is no, 130 interrupted (Ctrl-C)",
    ]
    return "\n".join(lines)


def _escape_unencodable() -> None:
    """Escapes names that a stream's encoding can't express, instead of raising an error.

    Output to a stream that the caller closed is discarded.
    """
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush() -> None:
    """Flushes stdout while errors can still be reported."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()
        raise


def _discard_stdout() -> None:
    """Discards output, to prevent a second failing flush at interpreter exit."""
    with suppress(OSError, ValueError):  # not a stream of the operating system
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
