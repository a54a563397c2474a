"""What doctor finds."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
NOTE = "note"  # good to know, nothing is broken
PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of doctor's report; `fix` is a command line that helps."""

    subject: str
    level: str  # OK, NOTE or PROBLEM
    text: str
    fix: str | None = None
