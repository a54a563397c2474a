"""Environment variables whose values would stop fastplan, or keep it from what they ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile

from fastplan.doctor.findings import NOTE, PROBLEM, Finding

_SUBJECT = "environment"
_OFF = ("", "0")


def check_values(environment: Mapping[str, str], planner_works: bool) -> Iterator[Finding]:
    """Values that are wrong; `planner_works` says whether TorchRec's planner can be imported."""
    yield from _skus(environment.get("FASTPLAN_SKUS", ""))
    yield from _patch(environment.get("FASTPLAN_PATCH", ""), planner_works)
    yield from _ett(environment.get("FASTPLAN_ETT", ""))
    yield from _launched(environment.get("FASTPLAN_ETT_LAUNCHED", ""))


def _skus(value: str) -> Iterator[Finding]:
    from fastplan.spec.hardware import HardwareError, known_hardware

    if value:
        try:
            known_hardware()
        except HardwareError as error:
            yield Finding(_SUBJECT, PROBLEM, str(error), "unset FASTPLAN_SKUS")


def _patch(value: str, planner_works: bool) -> Iterator[Finding]:
    if value in _OFF:
        return
    if value not in ("1", "init"):
        text = f"FASTPLAN_PATCH must be 1, init or 0, not {value!r}: `import fastplan` fails"
        yield Finding(_SUBJECT, PROBLEM, text, "export FASTPLAN_PATCH=1")
    elif not planner_works:
        text = (
            f"FASTPLAN_PATCH={value} needs TorchRec, which can't be used here: "
            "`import fastplan` fails"
        )
        yield Finding(_SUBJECT, PROBLEM, text, "unset FASTPLAN_PATCH")


def _ett(value: str) -> Iterator[Finding]:
    if value in _OFF:
        return
    path = Path(os.path.abspath(value))
    nearest = next(place for place in (path, *path.parents) if os.path.exists(place))
    try:
        with TemporaryFile(dir=nearest):
            return
    except OSError as error:
        text = f"FASTPLAN_ETT={value} records nothing: {nearest}: {error.strerror}"
    yield Finding(_SUBJECT, PROBLEM, text, "export FASTPLAN_ETT=DIR")


def _launched(value: str) -> Iterator[Finding]:
    try:
        float(value or 0)
    except ValueError:
        text = f"FASTPLAN_ETT_LAUNCHED must be seconds since 1970, not {value!r}: it is ignored"
        yield Finding(_SUBJECT, NOTE, text, "export FASTPLAN_ETT_LAUNCHED=$(date +%s)")
