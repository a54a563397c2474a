"""`fastplan inspect`: what a plan costs, and what limits it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from fastplan.cli.errors import OK
from fastplan.cli.outputs import check_outputs
from fastplan.cli.plan_files import add_reading_arguments, read

HELP = (
    "Shows a plan on a page: its rating and worst rank, memory headroom, the load of the busiest "
    "ranks, and the tables that pin the worst one. Costs are estimates, unless marked as measured."
)
EXAMPLES = """
fastplan inspect plan.json
fastplan inspect plan.json --ranks all --tables
fastplan inspect plan.json --html plan.html
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("plan", metavar="FILE", help="a plan file")
    parser.add_argument("--ranks", choices=("worst", "all"), default="worst", help="ranks to show")
    parser.add_argument("--tables", action="store_true", help="list every table")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a report to look at in a browser")
    add_reading_arguments(parser)


def run(args: Namespace) -> int:
    check_outputs(args.html, inputs=[args.plan])
    plan = read(args.plan, args)
    if args.html:
        from fastplan.cli.pages import write_page

        write_page([plan], args.html)
    if args.json:
        from json import dumps

        from fastplan.report.plan_text import inspect_json

        print(dumps(inspect_json(plan), indent=2))
    else:
        from sys import stdout

        from fastplan.report.plan_text import inspect_text
        from fastplan.report.terminal import Style

        style = Style.of(stdout)
        print(inspect_text(plan, ranks=args.ranks, tables=args.tables, style=style), end="")
        if args.html:
            print(f"\nwritten: {args.html}")
    return OK
