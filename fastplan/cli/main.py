"""The entry point of the command line: runs a command and returns its exit code.

A command is a click command of the same name in a module of `fastplan.cli`, and a line in GROUPS.
Importing the module must load neither torch nor numpy: help and completion import it.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from fastplan import __version__
from fastplan.cli.errors import FAILED, INTERRUPTED, OK, PIPE_CLOSED, message
from fastplan.report.terminal import Style, escape_name

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


# What `fastplan --help` shows: a line about each command, by group.
GROUPS = {
    "Plan": {
        "plan": "plan a spec file or a real model on a cluster",
        "export": "export a real model to a spec file",
        "precompute": "plan models on many clusters, fill a cache and show which clusters fit",
    },
    "Look": {
        "inspect": "show what a plan costs and what limits it",
        "explain": "show why a table has its option, or what binds a plan",
        "compare": "show what changes from one plan to another",
        "convert": "write a plan in another format",
        "checkpoint": "show checkpoints, and convert them to other plans",
        "skus": "list named hardware",
    },
    "Measure": {
        "measure": "run plans on this machine's devices and time their steps",
        "calibrate": "measure the constants that estimates should use",
        "profile": "show what the ids of a model look like, for costs and caches",
        "costs": "compare estimates with measured times",
        "ett": "show where a job's time went, and what faster planning would gain",
    },
    "Cache": {
        "cache": "list, show, check and prune cached plans",
        "bundle": "put plans and compiled code into one file for restarts",
        "run": "run torchrun, with workers that need no imports",
    },
    "Help": {
        "doctor": "find out what is wrong with this installation",
        "completion": "print a shell completion script",
    },
}
COMMANDS = {name: help for group in GROUPS.values() for name, help in group.items()}
# The module of fastplan.cli that a command is in, if it has another name.
_MODULES = {
    "calibrate": "measure",
    "compare": "plans",
    "completion": "help",
    "convert": "plans",
    "doctor": "help",
    "ett": "ett_gate",
    "export": "plan",
    "inspect": "plans",
}
# A typical use of each.
EXAMPLES = """
fastplan plan model.yaml --sku h100 --world-size 64
fastplan export mypkg.models:build -o model.yaml
fastplan precompute sweep.yaml --cache /shared/plans
fastplan inspect plan.json
fastplan explain plan.json sparse.table_09
fastplan compare before.json after.json
fastplan convert plan.json -o plan --to torcheasyrec
fastplan checkpoint convert ckpt/1000 --plan plan.json -o new
fastplan skus
fastplan measure model.yaml plan.json --nproc 8 -o runs/
fastplan calibrate --nproc 8 --model model.yaml -o my-cluster.yaml
fastplan profile model.yaml data/*.parquet -o ids.json
fastplan costs check times.jsonl
fastplan ett report runs/
fastplan cache ls
fastplan bundle save -o start.bundle --plans /shared/plans
fastplan run -- --nproc-per-node=8 train.py
fastplan doctor
source <(fastplan completion bash)
"""
# Options before the command.
OPTIONS = {
    "--help": "show help and examples of a command",
    "--debug": "show where an error comes from",
    "--no-color": "no colours, as NO_COLOR=1 does",
    "--version": "print the version",
}
COMPLETE = "_FASTPLAN_COMPLETE"  # set by the scripts of `fastplan completion`
# Imports make many objects that live on, and collecting among them took a tenth of a short command.
# A long command still collects its garbage, once in as many new objects.
_OBJECTS_PER_COLLECTION = 200_000
# Modules that may have something to do when the process ends, or load code that may.
_CLEAN_UP = frozenset({"fsspec", "multiprocessing", "numba", "torch"})


def run() -> NoReturn:
    """Runs the command line of this process, and ends the process with the exit code.

    A short command ends without freeing each object, which takes a tenth of its time.
    """
    code = main()
    if "duckdb" not in sys.modules:  # it reports what is not freed
        gc.freeze()  # what the interpreter would search for garbage twice
    if _is_watched() or not _CLEAN_UP.isdisjoint(sys.modules):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has closed it: `main` reported that
            stream.flush()
    os._exit(code)


def _is_watched() -> bool:
    """Whether a profiler, debugger or coverage tool watches, which reports at the end."""
    # Python 3.12 and later have tools of sys.monitoring, too; they are numbered from 0 to 5.
    get_tool = getattr(getattr(sys, "monitoring", None), "get_tool", lambda _: None)
    known = (sys.getprofile(), sys.gettrace(), *map(get_tool, range(6)))
    return any(each is not None for each in known)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The words after `fastplan`; by default those of this process.

    Returns:
        The exit code: 0 done or yes, 2 the answer is no, 1 an error, with a one-line message on
        stderr.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    thresholds = gc.get_threshold()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *thresholds[1:])
    try:
        return _exit_code(words)
    finally:
        gc.set_threshold(*thresholds)


def _exit_code(words: list[str]) -> int:
    """Runs the command line, and reports errors."""
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

        return diagnose("--json" in words, prove="--prove" in words)
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


def load(name: str) -> click.Command:
    """Imports a command."""
    from importlib import import_module

    module = import_module(f"fastplan.cli.{_MODULES.get(name, name)}")
    found: click.Command = getattr(module, name)
    return found


def top() -> click.Group:
    """Returns all commands as one click group, which imports only the called command."""
    from fastplan.cli.parser import Group, Option

    class Top(Group):
        kind = "command"

        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return load(cmd_name) if cmd_name in COMMANDS else None

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            from click.shell_completion import CompletionItem

            words = OPTIONS if incomplete.startswith("-") else COMMANDS
            return [
                CompletionItem(word, help=help)
                for word, help in words.items()
                if word.startswith(incomplete)
            ]

    # `main` handles it without click; it is here as a suggestion for misspelt words.
    version = Option("--version", OPTIONS["--version"], expose_value=False)
    return Top("fastplan", params=[version], examples=EXAMPLES)


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
