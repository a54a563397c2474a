"""The programs in examples/: how to run them, and which parts of their output vary.

`python -m tests.examples.programs` runs all of them and writes examples/expected.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cli.command import ROOT, environment

EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
# A job finds its plan when it starts a second time.
TIMES = {"train_dlrm": 2}
_SECONDS = 300

# Regular expressions by program. Numbers in what they match vary, and so do their units.
_MASKED = {
    "train_dlrm": [r"^planned in .*"],
    "kill_and_restart": [
        r"(?<=plan cache miss, ).*|(?<=plan cache hit, ).*",
        r"(?<=2 attempts, ).*",
        r"^(ETT|Time to Start|Time to Recover|Lost work) .*",
    ],
    "follow_a_change": [],
    "choose_a_cluster": [r"(?<=clusters planned in ).*"],
    "cost_model": [r"^planned with the function.*", r"^planned again.*"],
}
_NUMBER = re.compile(r"\d+(\.\d+)?( (us|ms|s|min|steps?)\b)?")


def mask(name: str, output: str) -> str:
    """Returns the output of a program with `#` for each number that varies, with its unit."""
    for pattern in _MASKED[name]:
        output = re.sub(pattern, lambda found: _NUMBER.sub("#", found[0]), output, flags=re.M)
    return output


def commands() -> dict[str, str]:
    """Returns the command line of each program, as examples/README.md has it."""
    text = (EXAMPLES / "README.md").read_text()
    found = re.findall(r"`((?:python|torchrun) [^`]*examples/(\w+)\.py)`", text)
    return {name: line for line, name in found}


def run(name: str, folder: Path) -> str:
    """Runs a program in an empty folder, as its reader would, and returns its masked output."""
    launcher, *words = shlex.split(commands()[name])
    module = ["-m", "torch.distributed.run", "--standalone"] if launcher == "torchrun" else []
    words[-1] = str(ROOT / words[-1])
    output = ""
    for _ in range(TIMES.get(name, 1)):
        ended = subprocess.run(
            [sys.executable, *module, *words],
            cwd=folder,
            env=environment(OMP_NUM_THREADS="1", NO_COLOR="1"),
            capture_output=True,
            encoding="utf-8",
            timeout=_SECONDS,
        )
        assert ended.returncode == 0, ended.stderr[-5000:]
        output += ended.stdout
    return mask(name, output)


def expected(name: str) -> Path:
    """Returns the file with the expected output of a program."""
    return EXAMPLES / "expected" / f"{name}.txt"


def main() -> None:
    """Writes the expected output of all programs."""
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            expected(name).write_text(run(name, Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
