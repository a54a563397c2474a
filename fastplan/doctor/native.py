"""Which parts of planning are native with the installed TorchRec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from fastplan.doctor import NOTE, OK, PROBLEM, Finding

DRAWS = 40  # of a full self-check: some minutes
_SCRIPT = "fastplan.torchrec.support.report"
_CODE = f"""
import json, runpy, sys
sys.path[:] = json.loads(sys.argv.pop(1))
runpy.run_module({_SCRIPT!r}, run_name="__main__")
"""
Progress = Callable[[int, int, str], None]


def check_native(*, prove: bool = False, progress: Progress | None = None) -> Iterator[Finding]:
    """Yields what is native with the installed TorchRec, part by part.

    Args:
        prove: Compare many plans of both planners, which takes minutes.
        progress: Called with the number of finished plans, of all plans, and the next case.
    """
    verdict = _verdict(prove, progress)
    if "error" in verdict:
        yield Finding("native", PROBLEM, f"the verdict on TorchRec failed: {verdict['error']}")
        return
    reasons: dict[str, str] = verdict["reasons"]
    yield Finding("native", NOTE if reasons else OK, _summary(verdict, prove))
    for part, reason in reasons.items():
        what = "all of planning" if part == "planner" else part
        yield Finding("native", NOTE, f"{what}: TorchRec's own code, because {reason}")


def _summary(verdict: dict[str, Any], prove: bool) -> str:
    name, plans = verdict["name"], verdict["plans"]
    texts = {
        "known": f"TorchRec {name} is known",
        "proven": f"TorchRec {name} is not known, and was proven by a self-check",
        "skipped": f"TorchRec {name} is not known, and the self-check is switched off",
        "unusable": "TorchRec does not have what native planning needs",
    }
    text = texts[verdict["origin"]]
    if plans:
        text += f"; {plans} plans were compared"
    if verdict["reasons"]:
        return text
    text += ", and every part is native"
    return text if prove or verdict["origin"] == "known" else f"{text} (`--prove` compares more)"


def _verdict(prove: bool, progress: Progress | None) -> dict[str, Any]:
    """Returns the last line of the report, which runs in another process."""
    command = [sys.executable, "-c", _CODE, json.dumps(sys.path), *([str(DRAWS)] if prove else [])]
    environment = {**os.environ, "FASTPLAN_PATCH": "0", "FASTPLAN_ETT": "0"}
    last: dict[str, Any] = {}
    try:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        ) as child:
            try:
                assert child.stdout is not None
                assert child.stderr is not None
                for line in child.stdout:
                    if not line.startswith("{"):
                        continue
                    last = json.loads(line)
                    if progress is not None and "done" in last:
                        progress(last["done"], last["of"], last["case"])
                errors = child.stderr.read()
            except BaseException:
                child.kill()
                raise
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    if child.returncode or "reasons" not in last:
        lines = errors.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {child.returncode}"}
    return last
