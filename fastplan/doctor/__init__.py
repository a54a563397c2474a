"""Diagnoses an installation without importing packages that may be broken."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
NOTE = "note"  # useful to know, nothing is broken
PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of doctor's report.

    Attributes:
        subject: What was checked.
        level: OK, NOTE or PROBLEM.
        text: What was found.
        fix: A command line that helps; None if there is none.
    """

    subject: str
    level: str
    text: str
    fix: str | None = None
