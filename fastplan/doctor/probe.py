"""Importing for real, in another process: what is broken may crash it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT = 300.0  # a cold network disk takes its time
_MARK = "fastplan probe: "

# Runs with this process's path, stops at the first module that can't be imported.
_SCRIPT = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])

def say(**facts):
    sys.stdout.write("\\nfastplan probe: " + json.dumps(facts) + "\\n")
    sys.stdout.flush()

def gpus(torch):
    if not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]

for name in sys.argv[2:]:
    say(step=name)
    try:
        module = importlib.import_module(name)
        facts = {"version": str(getattr(module, "__version__", ""))}
        if name == "torch":
            facts["gpus"] = gpus(module)
    except BaseException as error:
        missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
        told = []
        while error is not None and len(told) < 10:
            told.append(f"{type(error).__name__}: {error}")
            error = error.__cause__
        say(step=name, errors=told, missing=missing)
        break
    say(step=name, **facts)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the import of one module went."""

    version: str = ""
    gpus: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()  # from what was raised down to its cause; empty when it worked
    missing: str | None = None  # the module that was not found

    @property
    def worked(self) -> bool:
        return not self.errors

    @property
    def cause(self) -> str:
        """The error that explains most."""
        return self.errors[-1] if self.errors else ""


@dataclass(slots=True)
class _Reports:
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    begun: str | None = None  # and not ended

    def read(self, line: str) -> None:
        facts: dict[str, Any] = json.loads(line)
        name = facts.pop("step")
        self.begun = None if facts else name
        if facts:
            facts = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
            self.outcomes[name] = Outcome(**facts)


def try_imports(*modules: str) -> dict[str, Outcome]:
    """Imports the modules in order up to the first that fails. Later ones are not in the result."""
    # Importing fastplan must not import torch in turn.
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
        reports.outcomes[broken] = Outcome(errors=(_death(code, errors),))
    return reports.outcomes


def _death(code: int | None, errors: str) -> str:
    """Why a process that said nothing more has ended."""
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
