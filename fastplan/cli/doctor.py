"""The work of `fastplan doctor`. Imports only the standard library, not even click."""

from __future__ import annotations

import sys
from dataclasses import asdict

import fastplan.doctor as findings
from fastplan.cli.errors import NO, OK
from fastplan.cli.output import print_json, style
from fastplan.doctor import Finding
from fastplan.report.terminal import Style, escape_name
from fastplan.report.units import format_count

_COLOURS = {findings.OK: "green", findings.NOTE: "yellow", findings.PROBLEM: "red"}


def diagnose(as_json: bool, *, prove: bool = False) -> int:
    """Prints problems of this installation with their fixes, and returns the exit code.

    Args:
        as_json: Print one JSON object.
        prove: Compare many plans with TorchRec's planner.
    """
    from fastplan.doctor.checks import examine

    shown = style()
    found: list[Finding] = []
    for finding in examine(prove=prove, progress=_show_progress):
        found.append(finding)
        if not as_json:
            _show(finding, shown)
    problems = sum(finding.level == findings.PROBLEM for finding in found)
    notes = sum(finding.level == findings.NOTE for finding in found)
    if as_json:
        listed = [asdict(finding) for finding in found]
        print_json({"healthy": problems == 0, "findings": listed})
    else:
        summary = f"{format_count(problems, 'problem')}, {format_count(notes, 'note')}"
        print(f"\n{summary if problems or notes else 'everything is fine'}")
    return NO if problems else OK


def _show_progress(done: int, total: int, case: str) -> None:
    """Shows how far a comparison is, on a terminal only."""
    if sys.stderr.isatty():
        text = f"comparing plan {done + 1} of {total}: {case}"
        sys.stderr.write(f"\r{text:<78.78}" if done + 1 < total else f"\r{'':78}\r")
        sys.stderr.flush()


def _show(finding: Finding, style: Style) -> None:
    level = style.paint(f"{finding.level:<7}", _COLOURS[finding.level])
    print(f"{level}  {finding.subject:<11}  {escape_name(finding.text)}", flush=True)
    if finding.fix:
        print(f"{'':22}{style.paint('fix:', 'bold')} {escape_name(finding.fix)}", flush=True)
