"""`fastplan explain`: why a plan is as it is."""

from __future__ import annotations

from fastplan.cli.errors import OK, CommandError, UsageError
from fastplan.cli.options import json_option, read_plan, reading_options
from fastplan.cli.output import print_json, style
from fastplan.cli.parser import Args, argument, command, option

EXAMPLES = """
fastplan explain plan.json
fastplan explain plan.json sparse.table_09
fastplan explain plan.json table_09 --replan
fastplan explain plan.json table_09 --json
"""


@command("explain", EXAMPLES)
@argument("FILE", "a plan file", name="plan")
@argument("[TABLE]", "a table of the plan; without one, what binds the plan", name="table")
@option("--replan", "with TABLE: also plan all tables again, once with each of its options")
@json_option()
@reading_options
def explain(args: Args) -> int:
    """Explains a plan. For a table: its options with cost and memory, why each other option lost,
    and what would have to change for it to win. For the plan: the rank that binds, its tables,
    memory, and which change of one table would help. Only one table changes at a time; --replan
    runs TorchRec's search for all tables.
    """
    if args.replan and args.table is None:
        raise UsageError("--replan needs a table: fastplan explain PLAN TABLE --replan")
    plan = read_plan(args.plan, args)
    from fastplan.report.binding import explain_model
    from fastplan.report.binding_text import model_json, model_text
    from fastplan.report.estimates import EstimateUnavailable
    from fastplan.report.explain import MissingRequest, NoSuchTable, explain_table
    from fastplan.report.explain_text import table_json, table_text

    try:
        if args.table is None:
            model = explain_model(plan)
            text, document = model_text(model, style()), model_json(model)
        else:
            table = explain_table(plan, args.table, replan=args.replan)
            text, document = table_text(table, style()), table_json(table)
    except (MissingRequest, NoSuchTable, EstimateUnavailable) as problem:
        raise CommandError(f"{args.plan}: {problem}") from problem
    if args.json:
        print_json(document)
    else:
        print(text, end="")
    return OK
