"""The way in: help, options, errors, exit codes and streams."""

import os
import signal
import subprocess
import sys

import pytest

from fastplan import __version__
from fastplan.cli import main as cli
from fastplan.cli.main import COMMANDS, EXAMPLES, GROUPS, main
from fastplan.cli.parser import command
from tests.cli.command import COMMAND, call, environment, run

HEAVY = ("torch", "torchrec", "numpy", "numba", "yaml", "fsspec", "urllib.request", "ssl", "rich")


def install(monkeypatch, act):
    """Makes `fastplan try` a command that does this."""
    monkeypatch.setattr(cli, "COMMANDS", {"try": "tries something"})
    monkeypatch.setattr(cli, "load", lambda _: command("try", "fastplan try")(act))


def raising(error):
    def act(args):
        raise error

    return act


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("--debug", "--help")])
def test_help_is_a_map_of_the_commands_by_group(capsys, words):
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    for name, help in COMMANDS.items():
        assert f"  {name} " in out
        assert help in out
    assert all(f"  {line}\n" in out for line in EXAMPLES.strip().splitlines())
    places = [out.index(f"\n{group}\n") for group in GROUPS]
    assert places == sorted(places)
    assert max(map(len, out.splitlines())) <= 100


def test_the_version_is_told(capsys):
    assert call(capsys, "--version") == (0, f"fastplan {__version__}\n", "")


@pytest.mark.parametrize("words", [("--debug", "try"), ("try", "--debug")])
def test_options_before_and_after_the_command_are_the_same(monkeypatch, capsys, words):
    install(monkeypatch, raising(ZeroDivisionError()))
    code, _, err = call(capsys, *words)
    assert code == 1
    assert err.startswith("Traceback")


def test_no_color_reaches_whoever_looks_at_the_environment(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    seen = []
    install(monkeypatch, lambda args: seen.append(os.environ["NO_COLOR"]) or 0)
    main(("try",))
    main(("try", "--no-color"))
    monkeypatch.setenv("NO_COLOR", "")
    main(("--no-color", "try"))
    assert seen == ["", "1", "1"]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_commands_exit_code_is_returned(monkeypatch, code):
    install(monkeypatch, lambda args: code)
    assert main(("try",)) == code


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cahce",), "unknown command `cahce`: did you mean `cache`?"),
        (("xyzzy",), "unknown command `xyzzy`: there are "),
        (("--frobnicate",), "unknown argument `--frobnicate`"),
        (("--vers",), "unknown argument `--vers`; did you mean `--version`?"),
        (("cache", "ls", "--frobnicate"), "unknown argument `--frobnicate`"),
        (("cache",), "required: ACTION"),
        (("doctor", "torch"), "unknown argument `torch`"),
        (("cache", "sl"), "unknown action `sl`: did you mean `ls`?"),
        (("completion", "bsh"), "unknown shell `bsh`: did you mean `bash`?"),
        (("\x1b[31mred",), "unknown command `\\x1b[31mred`"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_1(capsys, words, told):
    code, out, err = call(capsys, *words)
    assert (code, out) == (1, "")
    assert err.startswith("fastplan: error: ")
    assert told in err
    assert "--help`" in err
    assert err.count("\n") == 1


def test_an_error_of_fastplans_own_is_told_as_it_is(monkeypatch, capsys):
    from fastplan.cache.stores import StoreError

    install(monkeypatch, raising(StoreError("down: \x1b[2J\nstart it")))
    code, out, err = call(capsys, "try")
    assert (code, out, err) == (1, "", "fastplan: error: down: \\x1b[2J start it\n")


def test_any_other_error_is_told_with_its_type_and_a_hint(monkeypatch, capsys):
    install(monkeypatch, raising(ZeroDivisionError("division by zero")))
    code, _, err = call(capsys, "try")
    assert code == 1
    assert err == "fastplan: error: ZeroDivisionError: division by zero (--debug shows where)\n"


def test_debug_shows_where(monkeypatch, capsys):
    install(monkeypatch, raising(ZeroDivisionError("division by zero")))
    code, _, err = call(capsys, "try", "--debug")
    assert code == 1
    assert "Traceback" in err
    assert "in act\n    raise error" in err
    assert err.endswith("(--debug shows where)\n")


def test_an_interrupt_is_one_line_and_exit_code_130(monkeypatch, capsys):
    install(monkeypatch, raising(KeyboardInterrupt()))
    assert call(capsys, "try") == (130, "", "\nfastplan: interrupted\n")


# Makes `fastplan try` a command that does ACT, and runs it.
TRY = """
import signal, sys
from fastplan.cli import main as cli
from fastplan.cli.main import main
from fastplan.cli.parser import command

@command("try", "fastplan try")
def act(args):
    ACT

cli.COMMANDS = {"try": "tries something"}
cli.load = lambda _: act
sys.exit(main(["try"]))
"""
WAITING = """print("ready", flush=True)
    while True:
        signal.pause()"""


@pytest.mark.skipif(not hasattr(signal, "pause"), reason="no such signals")
def test_control_c_ends_a_running_command_without_a_traceback():
    with subprocess.Popen(
        [sys.executable, "-c", TRY.replace("ACT", WAITING)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "\nfastplan: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_reader_that_has_seen_enough_ends_it_silently():
    line = 'set -o pipefail; "$@" --help | true; echo ${PIPESTATUS[0]}'
    ended = subprocess.run(
        ["bash", "-c", line, "bash", *COMMAND], capture_output=True, text=True, env=environment()
    )
    assert ended.stderr == ""
    assert ended.stdout in ("0\n", "141\n")  # 0 if all was written before the pipe was closed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith("fastplan: error: ")
    assert ended.stderr.count("\n") == 1


def test_text_that_the_stream_has_no_characters_for_is_escaped():
    code = TRY.replace("ACT", r"return print('t\u00e4ble\ud800') or 0")
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=environment(PYTHONIOENCODING="ascii"),
    )
    assert (ended.returncode, ended.stdout) == (0, b"t\\xe4ble\\ud800" + os.linesep.encode())


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_closed_streams_are_no_error():
    ended = subprocess.run(
        ["bash", "-c", '"$@" --help >&- 2>&-', "bash", *COMMAND], env=environment()
    )
    assert ended.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("completion", "bash"),
        ("cache", "ls"),
        *((name, "--help") for name in COMMANDS),
    ],
    ids=" ".join,
)
def test_it_answers_without_loading_anything_heavy(words, tmp_path):
    code = (
        "import sys; from fastplan.cli.main import main; code = main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        env=environment(FASTPLAN_CACHE=str(tmp_path)),
    )
    assert (ended.returncode, ended.stderr) == (0, "[]\n")


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_imports_neither_a_command_nor_click(word):
    code = (
        f"import sys; from fastplan.cli.main import main; main([{word!r}]);"
        "loaded = {'fastplan.cli.cache', 'fastplan.cli.help', 'click'} & sys.modules.keys();"
        "print(sorted(loaded))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"


def test_output_before_an_error_is_kept():
    code = TRY.replace("ACT", 'print("before"); raise ValueError("wrong")')
    code = code.replace('sys.exit(main(["try"]))', 'sys.argv[1:] = ["try"]; cli.run()')
    buffered = environment(PYTHONUNBUFFERED="")
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=buffered
    )
    assert (ended.returncode, ended.stdout) == (1, "before\n")
    assert "wrong" in ended.stderr


@pytest.mark.parametrize("module", ["numba", "multiprocessing"])
def test_exit_handlers_run_where_code_of_others_is_loaded(module):
    code = (
        f"import atexit, sys; sys.modules[{module!r}] = sys; from fastplan.cli.main import run;"
        "atexit.register(print, 'over'); sys.argv[1:] = ['--version']; run()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert ended.stdout.splitlines()[-1] == "over"


def test_a_profiler_can_report():
    ended = subprocess.run(
        [sys.executable, "-m", "cProfile", *COMMAND[1:], "--version"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert "function calls" in ended.stdout


def test_it_runs_as_a_module():
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"fastplan {__version__}\n")
