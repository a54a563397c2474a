"""Imports modules in another process, because broken ones may crash it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT = 300.0  # a cold network disk is slow
_MARK = "fastplan probe: "

# Uses this process's path, and stops at the first module that can't be imported.
_SCRIPT = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])

def report(**facts):
    sys.stdout.write("\\nfastplan probe: " + json.dumps(facts) + "\\n")
    sys.stdout.flush()

def gpus(torch):
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]

for name in sys.argv[2:]:
    report(step=name)
    try:
        module = importlib.import_module(name)
        facts = {"version": str(getattr(module, "__version__", ""))}
        if name == "torch":
            facts["gpus"] = gpus(module)
    except BaseException as error:
        missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
        errors = []
        while error is not None and len(errors) < 10:
            errors.append(f"{type(error).__name__}: {error}")
            error = error.__cause__
        report(step=name, errors=errors, missing=missing)
        break
    report(step=name, **facts)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of importing one module.

    Attributes:
        version: The module's version.
        gpus: The names of the GPUs, for torch.
        errors: From the raised error down to its cause; empty if the import worked.
        missing: The module that was not found.
    """

    version: str = ""
    gpus: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    missing: str | None = None

    @property
    def worked(self) -> bool:
        """Whether the import worked."""
        return not self.errors

    @property
    def cause(self) -> str:
        """The last cause, which explains most; empty if the import worked."""
        return self.errors[-1] if self.errors else ""


@dataclass(slots=True)
class _Reports:
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    begun: str | None = None  # but not finished

    def read(self, line: str) -> None:
        facts: dict[str, Any] = json.loads(line)
        name = facts.pop("step")
        self.begun = None if facts else name
        if facts:
            facts = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
            self.outcomes[name] = Outcome(**facts)


def try_imports(*modules: str) -> dict[str, Outcome]:
    """Imports modules in order, up to the first that fails; the result has no later ones."""
    # Importing fastplan must not import torch.
    environment = {**os.environ, "FASTPLAN_PATCH": "0"}
    command = [sys.executable, "-c", _SCRIPT, json.dumps(sys.path), *modules]
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=_TIMEOUT,
            check=False,
        )
        output, errors, code = ended.stdout, ended.stderr, ended.returncode
    except subprocess.TimeoutExpired as late:
        output, errors, code = _as_text(late.stdout), "", None
    except OSError as error:
        return {modules[0]: Outcome(errors=(f"Python can't be started: {error}",))}
    reports = _Reports()
    for line in output.splitlines():
        if line.startswith(_MARK):
            reports.read(line.removeprefix(_MARK))
    if code != 0 and not any(not outcome.worked for outcome in reports.outcomes.values()):
        broken = reports.begun or modules[0]
        reports.outcomes[broken] = Outcome(errors=(_exit_reason(code, errors),))
    return reports.outcomes


def _exit_reason(code: int | None, errors: str) -> str:
    """Returns why a process ended without output."""
    if code is None:
        return f"importing takes over {_TIMEOUT:g} s"
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    if code >= 0:
        return last or f"Python ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"importing crashes Python ({name})" + (f": {last}" if last else "")


def _as_text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
