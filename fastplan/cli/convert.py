"""`fastplan convert`: a plan in another format."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from fastplan.cli.errors import OK
from fastplan.cli.outputs import check_outputs
from fastplan.cli.plan_files import add_reading_arguments, read

HELP = (
    "Writes a plan in another format: a plan file, TorchEasyRec's JSON, or a pickled ShardingPlan, "
    "which needs TorchRec. Reads these, and the text and JSON that TorchRec prints of its plans."
)
EXAMPLES = """
fastplan convert plan.json -o plan --to torcheasyrec
fastplan convert dry_run.txt -o plan.json
fastplan convert plan.pickle -o plan.json --trust-pickle
"""
FORMATS = ("fastplan", "torcheasyrec", "pickle")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("plan", metavar="FILE", help="a plan in any format that can be read")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the file to write")
    parser.add_argument(
        "--to", choices=FORMATS, default="fastplan", metavar="FORMAT", help=", ".join(FORMATS)
    )
    add_reading_arguments(parser)


def run(args: Namespace) -> int:
    from fastplan.plans.foreign import write_any
    from fastplan.report.units import format_count

    check_outputs(args.output, inputs=[args.plan])
    plan = read(args.plan, args)
    write_any(plan, args.output, args.to)
    print(f"written: {args.output} ({format_count(len(plan.layout.tables), 'table')})")
    return OK
