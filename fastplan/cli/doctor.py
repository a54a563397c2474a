"""`fastplan doctor`: what is wrong with this installation, and what helps."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

import fastplan.doctor as findings
from fastplan.cli.errors import NO, OK
from fastplan.doctor import Finding
from fastplan.report.names import visible
from fastplan.report.terminal import Style
from fastplan.report.units import of_count

HELP = """
Looks at Python, numpy, the native core, torch, FBGEMM and TorchRec, the plan cache and the
environment. Imports what is installed in another process, so nothing broken can stop it. Problems
come with the command that fixes them where there is one; what it has in capitals, such as DIR, is
for you to fill in. The exit code is 2 if there is a problem.
"""
EXAMPLES = """
fastplan doctor
fastplan doctor --json
"""
_COLOURS = {findings.OK: "green", findings.NOTE: "yellow", findings.PROBLEM: "red"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(args: Namespace) -> int:
    from fastplan.doctor.checks import examine

    style = Style.of(sys.stdout)
    found: list[Finding] = []
    for finding in examine():
        found.append(finding)
        if not args.json:
            _show(finding, style)
    problems = sum(finding.level == findings.PROBLEM for finding in found)
    notes = sum(finding.level == findings.NOTE for finding in found)
    if args.json:
        listed = [asdict(finding) for finding in found]
        print(json.dumps({"healthy": problems == 0, "findings": listed}, indent=2))
    else:
        summary = f"{of_count(problems, 'problem')}, {of_count(notes, 'note')}"
        print(f"\n{summary if problems or notes else 'everything is fine'}")
    return NO if problems else OK


def _show(finding: Finding, style: Style) -> None:
    level = style.paint(f"{finding.level:<7}", _COLOURS[finding.level])
    print(f"{level}  {finding.subject:<11}  {visible(finding.text)}", flush=True)
    if finding.fix:
        print(f"{'':22}{style.paint('fix:', 'bold')} {visible(finding.fix)}", flush=True)
