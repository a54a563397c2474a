"""Runs code in separate processes, which tests can kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", **more}


def run(code: str, directory: Path | None = None, **more: str) -> str:
    """The output of Python code; recording is on if there is a directory."""
    if directory is not None:
        more["FASTPLAN_ETT"] = str(directory)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def start(code: str, directory: Path, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(FASTPLAN_ETT=str(directory), **more),
    )
