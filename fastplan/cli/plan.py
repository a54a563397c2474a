"""`fastplan plan`: plans a spec file or a real model."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from fastplan.cli import optimizing
from fastplan.cli.amounts import part
from fastplan.cli.errors import INTERRUPTED, NO, OK, CommandError, UsageError
from fastplan.cli.outputs import check_outputs
from fastplan.cli.parser import add_cache_choice
from fastplan.cli.targets import add_cluster_arguments, add_trust_argument, load_target
from fastplan.report.names import escape_name

if TYPE_CHECKING:
    from fastplan.cache.plan_cache import PlanCache
    from fastplan.engine.optimize import OptimizeSettings
    from fastplan.model.job import Job
    from fastplan.model.plan import Plan
    from fastplan.planning.plan import Planned
    from fastplan.planning.policy import ReplanPolicy
    from fastplan.spec.model import ModelSpec

HELP = (
    "Plans a model on a cluster: the plan that TorchRec's planner would return there. A spec file "
    "needs neither torch nor a GPU; `package.module:function` names a real model, by a function "
    "that returns module, (module, sharders) or (module, sharders, constraints). --optimize gives "
    "a better plan, and a bound that no plan is below; Ctrl-C takes the best so far, "
    "with exit code 130."
)
EXAMPLES = """
fastplan plan model.yaml --sku h100 --world-size 64
fastplan plan model.yaml --sku a100-80 --world-size 16 -o plan.json --html plan.html
fastplan plan model.yaml --sku h100 --world-size 56 --previous plan.json --max-moved 5%
fastplan plan model.yaml --sku h100 --world-size 64 --optimize --time-budget 10 --threads 2
fastplan plan mypkg.models:build --sku h100 --world-size 64 --cache /shared/plans
fastplan plan model.yaml --sku h100 --world-size 64 --cost mypkg.costs:my_cost
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a spec file, or package.module:function")
    add_cluster_arguments(parser)
    own = parser.add_argument_group("costs of your own")
    own.add_argument(
        "--cost", metavar="NAME", help="package.module:function with @fastplan.shard_cost"
    )
    own.add_argument(
        "--objective", metavar="NAME", help="package.module:function with @fastplan.plan_objective"
    )
    add_trust_argument(own)
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    output.add_argument("--html", metavar="FILE", help="write a report to look at in a browser")
    output.add_argument("--json", action="store_true", help="print the result as JSON")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    older = parser.add_argument_group("older plans")
    add_cache_choice(older)
    older.add_argument(
        "--previous", metavar="FILE", help="a plan file to follow: few bytes move from there"
    )
    older.add_argument(
        "--max-moved",
        type=part,
        metavar="PART",
        help="bytes that may move beyond what must; default 5%%",
    )
    older.add_argument(
        "--slack",
        type=part,
        metavar="PART",
        help="how far the rating may be above a new plan's; default 1%%",
    )
    optimizing.add_arguments(parser, rules=True)


def run(args: Namespace) -> int:
    from fastplan.cache.plan_cache import open_cache
    from fastplan.model.job import DoesNotFit
    from fastplan.spec.lower import lower

    check_outputs(args.output, args.html, inputs=[args.model, args.sku, args.previous])
    optimization, policy = optimizing.settings_of(args), _policy(args)
    spec = _with_functions(load_target(args), args)
    where = False if args.no_cache else args.cache
    cache = open_cache(where, capacity_tolerance=0.01, timeout=30.0)
    try:
        job = lower(spec, trust=args.trust_code)
    except DoesNotFit as why:
        _say(args, spec.name, {"fits": False, "model": spec.name, "reason": str(why)}, str(why))
        return NO
    planned = _plan(job, cache, optimization, args.previous, policy)
    if planned.cache.status == "failed":
        from sys import stderr

        reason = escape_name(str(planned.cache.reason))
        print(f"fastplan: warning: the cache failed: {reason}", file=stderr)
    if planned.record is None:
        _say_infeasible(args, planned)
        return NO
    hardware = spec.topology.hardware
    plan = planned.plan({"sku": hardware.name} if hardware is not None else None)
    _show(args, plan, planned)  # first, so that a disk that is full costs the files only
    _write(args, plan)
    return INTERRUPTED if planned.interrupted else OK


def _show(args: Namespace, plan: Plan, planned: Planned) -> None:
    if args.json:
        from json import dumps

        from fastplan.report.plan_text import inspect_json

        facts = {"fits": True, **inspect_json(plan)}
        if planned.replan is not None:
            from fastplan.report.plan_text import replan_json

            facts["replan"] = replan_json(planned.replan)
        print(dumps(facts, indent=2))
    elif not args.quiet:
        from sys import stdout

        from fastplan.report.plan_text import inspect_text
        from fastplan.report.terminal import Style

        print(inspect_text(plan, style=Style.of(stdout)), end="")
        if planned.replan is not None:
            from fastplan.report.plan_text import replan_lines

            print("", *replan_lines(planned.replan), sep="\n")


def _policy(args: Namespace) -> ReplanPolicy:
    """How a plan may follow the one of --previous."""
    given = {"max_moved": args.max_moved, "slack": args.slack}
    parts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if parts and args.previous is None:
        raise UsageError(f"--{next(iter(parts)).replace('_', '-')} is for --previous FILE")
    from fastplan.planning.policy import ReplanPolicy

    try:
        return ReplanPolicy(**parts)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plan(
    job: Job,
    cache: PlanCache | None,
    settings: OptimizeSettings | None,
    previous: str | None,
    policy: ReplanPolicy,
) -> Planned:
    """The plan, or the one that follows the plan of a file."""
    from fastplan.cli.terminal import Countdown
    from fastplan.planning.plan import plan_job
    from fastplan.planning.replan_job import replan_job
    from fastplan.plans.file import read_plan

    older = None if previous is None else read_plan(previous)
    seconds = None if settings is None else settings.time_budget
    with Countdown("improving the plan", seconds):
        if older is None:
            planned = plan_job(job, cache, settings)
        else:
            planned = replan_job(job, older, policy, settings, cache)
    if planned.interrupted:
        from sys import stderr

        print("\nfastplan: interrupted; this is the best plan so far", file=stderr)
    return planned


def _with_functions(spec: ModelSpec, args: Namespace) -> ModelSpec:
    """The spec with the functions of the command line, which are the user's own words."""
    from dataclasses import replace

    from fastplan.spec.references import is_reference

    for option in ("cost", "objective"):
        name = getattr(args, option)
        if name is not None and not is_reference(name):
            raise CommandError(f"--{option} must be package.module:function, not {name!r}")
    if args.cost is not None:
        from fastplan.costs.named import find_cost

        spec = replace(spec, shard_cost=find_cost(args.cost))
    if args.objective is not None:
        from fastplan.costs.named import find_objective

        spec = replace(spec, objective=find_objective(args.objective))
    return spec


def _write(args: Namespace, plan: Plan) -> None:
    if args.output:
        from fastplan.plans.file import write_plan

        write_plan(plan, args.output)
    if args.html:
        from fastplan.cli.pages import write_page

        write_page([plan], args.html)
    written = [name for name in (args.output, args.html) if name]
    if written and not args.json and not args.quiet:
        print(f"\nwritten: {', '.join(written)}")


def _say_infeasible(args: Namespace, planned: Planned) -> None:
    from fastplan.report.units import format_count
    from fastplan.sweep.memory import explain_lack

    name = planned.job.name
    lack, words = explain_lack(planned)
    if lack is not None and planned.shortage is not None:
        words += f"; {planned.shortage.largest}"
    tables = format_count(len(planned.job.request.tables), "table")
    ranks = format_count(len(planned.job.cluster.rank_hbm), "rank")
    facts = {"fits": False, "model": name, "fingerprint": planned.key, "reason": words}
    _say(args, name, facts | (lack or {}), f"no plan of {tables} fits on {ranks}: {words}")


def _say(args: Namespace, name: str, facts: dict[str, object], words: str) -> None:
    if args.json:
        from json import dumps

        print(dumps(facts, indent=2))
    elif not args.quiet:
        print(escape_name(f"{name}: {words}."))
        print(
            "Try more ranks, a SKU with more memory, a smaller batch or `--precision fp16`; "
            "`fastplan precompute` finds the smallest cluster that fits."
        )
