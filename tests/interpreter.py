"""Code in a fresh interpreter, for what depends on imports and the environment."""

import os
import subprocess
import sys

# Without these a core that was built with sanitizers can't be loaded.
_SANITIZERS = ("LD_PRELOAD", "ASAN_OPTIONS")


def python(code: str, **environment: str) -> str:
    """What the code prints, with nothing else in its environment than where modules are."""
    needed = {name: os.environ[name] for name in _SANITIZERS if name in os.environ}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), **needed, **environment},
    )
    return result.stdout.strip()
