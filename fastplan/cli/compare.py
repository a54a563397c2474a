"""`fastplan compare`: what changes from one plan to another."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import NO, OK, UsageError
from fastplan.cli.plan_files import add_reading_arguments, read

if TYPE_CHECKING:
    from fastplan.measure.results import Runs
    from fastplan.plans.plan import Plan

HELP = (
    "Shows what changes from one plan to the next: tables that are re-sharded or moved, the bytes "
    "that ranks must receive, ratings, memory and load. The exit code is 0 if the plans are the "
    "same and 2 if they differ."
)
EXAMPLES = """
fastplan compare before.json after.json
fastplan compare plan-8.json plan-16.json --force
fastplan compare a.json b.json c.json --html plans.html
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("plans", metavar="FILE", nargs="+", help="plan files, the first one first")
    parser.add_argument(
        "--force", action="store_true", help="compare plans of different models or clusters too"
    )
    parser.add_argument("--tables", action="store_true", help="list every changed table")
    parser.add_argument(
        "--measured", metavar="DIR", help="what `fastplan measure` found, beside the estimates"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a report to look at in a browser")
    add_reading_arguments(parser)


def run(args: Namespace) -> int:
    if len(args.plans) < 2:
        raise UsageError("two plans or more are needed (see `fastplan compare --help`)")
    from fastplan.report.comparison import compare, distinct

    plans = [read(path, args) for path in args.plans]
    labels = distinct(args.plans)
    runs = _runs(args.measured)
    measured = None
    if runs is not None:
        from fastplan.measure.agreement import measured_for

        measured = measured_for(plans, labels, runs)
    comparison = compare(plans, labels=labels, measured=measured, force=args.force)
    if args.html:
        from fastplan.cli.pages import write_page

        write_page(plans, args.html, comparison)
    if args.json:
        from json import dumps

        from fastplan.report.compare_text import compare_json

        print(dumps(compare_json(comparison) | _agreement(plans, labels, runs), indent=2))
    else:
        from sys import stdout

        from fastplan.report.compare_text import compare_text
        from fastplan.report.terminal import Style

        style = Style.of(stdout)
        print(compare_text(comparison, tables=args.tables, style=style), end="")
        if runs is not None:
            from fastplan.measure.agreement import agreement
            from fastplan.measure.agreement_text import agreement_text

            print(f"\n{agreement_text(agreement(plans, labels, runs), runs, style)}", end="")
        if args.html:
            print(f"\nwritten: {args.html}")
    return OK if comparison.same else NO


def _runs(folder: str | None) -> Runs | None:
    if folder is None:
        return None
    from fastplan.measure.results import read_runs

    return read_runs(folder)


def _agreement(plans: list[Plan], labels: list[str], runs: Runs | None) -> dict[str, Any]:
    if runs is None:
        return {}
    from fastplan.measure.agreement import agreement
    from fastplan.measure.agreement_text import agreement_json

    return {"agreement": agreement_json(agreement(plans, labels, runs), runs)}
