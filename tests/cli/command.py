"""Running the command: in this process, or in one of its own where streams and signals count."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

from fastplan.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "fastplan"]


class ClosedPipe(io.StringIO):
    """A stdout whose reader has ended."""

    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def environment(**variables):
    """This one's, without what changes a command's output."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FASTPLAN_") and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **variables}


def run(*words, **variables):
    """The ended process."""
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=120,
    )


def call(capsys, *words):
    """Exit code, stdout and stderr of the command in this process."""
    code = main(words)
    return code, *capsys.readouterr()
