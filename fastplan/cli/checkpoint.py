"""`fastplan checkpoint`: shows checkpoints, and converts them to other plans."""

from __future__ import annotations

from fastplan.cli.errors import OK
from fastplan.cli.options import json_option
from fastplan.cli.output import Progress, print_json, report_written, table
from fastplan.cli.parser import Args, Group, argument, option
from fastplan.cli.values import count

HELP = """
Shows checkpoints of torch.distributed.checkpoint (DCP), and converts them to other plans. A path is
a directory, or a URL that fsspec knows. Metadata is read as data: nothing that it names is run.
"""
EXAMPLES = """
fastplan checkpoint inspect ckpt/1000
fastplan checkpoint convert ckpt/1000 --plan plan.json -o ckpt/1000-on-16-ranks
"""
_MIB = 1 << 20


checkpoint = Group("checkpoint", help=HELP, examples=EXAMPLES)


@checkpoint.action(
    "inspect",
    "show tables, states, shards and the plan",
    "fastplan checkpoint inspect ckpt/1000\nfastplan checkpoint inspect s3://bucket/1000 --json",
)
@argument("PATH", "a checkpoint", name="path")
@json_option()
def _inspect(args: Args) -> int:
    from fastplan.checkpoint.contents import contents_json, inspect
    from fastplan.report.units import format_bytes, format_count

    found = inspect(args.path)
    if args.json:
        print_json(contents_json(found))
        return OK
    rows = []
    for each in found.tables:
        weight, *states = each.parts
        names = ", ".join(f"{state.name} ({state.kind})" for state in states)
        size = f"{each.rows:,} x {each.columns:,}"
        how = each.sharding or f"{weight.chunks} chunks"
        rows.append((each.key, size, weight.dtype, how, names, format_bytes(each.bytes)))
    titles = ("table", "size", "type", "sharding", "states", "bytes")
    print("\n".join(table(titles, rows, "<><<<>")))
    plan = "with its plan" if found.has_plan else "without a plan"
    others = f"{format_count(len(found.others), 'other value')} of "
    print(
        f"\n{format_count(len(found.tables), 'table')}, {others}"
        f"{format_bytes(sum(found.others.values()))}, {plan}; {format_bytes(found.bytes)} in "
        f"{format_count(found.files, 'file')}"
    )
    return OK


@checkpoint.action(
    "convert",
    "write a checkpoint as a job with another plan would have saved it",
    "fastplan checkpoint convert ckpt/1000 --plan plan.json -o new\n"
    "fastplan checkpoint convert ckpt/1000 --plan plan.json -o new --step 1000 --merge mean",
)
@argument("PATH", "a checkpoint", name="path")
@option("--plan FILE", "the plan", required=True)
@option("-o, --output DIR", "the new directory", required=True)
@option(
    "--merge {exact,mean}",
    "row-wise states of column shards that become one: refuse unless equal, or take their mean",
    default="exact",
)
@option("--step N", "the step, where the checkpoint has none", read=count)
@option("--under NAME", "the part of the checkpoint with the weights, if it has several")
def _convert(args: Args) -> int:
    from fastplan.checkpoint.converting import convert
    from fastplan.report.units import format_bytes

    shown: list[Progress] = []

    def advance(done: int, total: int) -> None:
        if not shown:
            shown.append(Progress("converting MiB", total // _MIB).__enter__())
        shown[0].reach(done // _MIB)

    try:
        written = convert(
            args.path,
            args.plan,
            args.output,
            merge=args.merge,
            step=args.step,
            under=args.under,
            progress=advance,
        )
    finally:
        for each in shown:
            each.__exit__()
    report_written(args.output, f" ({format_bytes(written)})")
    return OK
