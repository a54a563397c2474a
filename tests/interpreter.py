"""Code in a fresh interpreter, for what depends on imports and the environment."""

import subprocess
import sys


def python(code: str, **environment: str) -> str:
    """What the code prints, with nothing else in its environment than where modules are."""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **environment},
    )
    return result.stdout.strip()
