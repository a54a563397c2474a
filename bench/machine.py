"""The origin of a result besides the code: versions, machine, memory."""

import importlib.metadata
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# Changes here don't affect results.
_CODE = ("--", "fastplan", "cpp", "setup.py", "bench/*.py")
PACKAGES = ("fastplan", "torchrec", "torch", "fbgemm-gpu-cpu", "numpy")


def describe() -> dict[str, Any]:
    """Date, versions, commit and machine, for the head of a result file."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def peak_rss_bytes() -> int:
    """The peak resident memory of this process so far."""
    return _status_bytes("VmHWM")


def rss_bytes() -> int:
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}: memory can be measured on Linux only")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checkout's commit, with "+" appended if the code differs; None outside a checkout."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        here = Path(__file__).parents[1]
        return subprocess.run(
            command, cwd=here, check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--short", *_CODE) else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
