"""`fastplan plan` and `fastplan export`: plan a model, or export it to a spec file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import (
    INTERRUPTED,
    NO,
    OK,
    CommandError,
    UsageError,
    naming_options,
)
from fastplan.cli.options import (
    cache_options,
    cluster_options,
    html_option,
    is_function,
    json_option,
    load_target,
    optimization,
    optimize_options,
    replica_options,
    replication,
    rule_options,
    trust_option,
)
from fastplan.cli.output import (
    Countdown,
    check_outputs,
    check_replaced,
    print_and_write,
    print_json,
    print_written,
    report_interrupt,
    report_written,
    style,
    warn,
    write_page,
)
from fastplan.cli.parser import Args, argument, command, option, options
from fastplan.report.terminal import escape_name

if TYPE_CHECKING:
    from fastplan.cache.plan_cache import Cache
    from fastplan.engine.optimize import Optimize
    from fastplan.model.plan import Plan
    from fastplan.planning.policy import Replan
    from fastplan.planning.replicas import Replicas
    from fastplan.planning.search import Result
    from fastplan.spec.model import ModelSpec

EXAMPLES = """
fastplan plan model.yaml --sku h100 --world-size 64
fastplan plan model.yaml --sku a100-80 --world-size 16 -o plan.json --html plan.html
fastplan plan model.yaml --sku h100 --world-size 56 --previous plan.json --max-moved 5%
fastplan plan model.yaml --sku h100 --world-size 64 --optimize --time-budget 10 --threads 2
fastplan plan mypkg.models:build --sku h100 --world-size 64 --cache /shared/plans
fastplan plan model.yaml --sku h100 --world-size 4096 --replica-groups auto --sync-interval 4
fastplan plan model.yaml --sku h100 --world-size 64 --costs hardware --optimize
fastplan plan model.yaml --sku h100 --world-size 64 --cost mypkg.costs:my_cost
"""
EXPORT_EXAMPLES = """
fastplan export mypkg.models:build -o model.yaml
fastplan export mypkg.models:build --batch-size 4096 --sku h100 --world-size 64 -o model.json
"""


@command("plan", EXAMPLES)
@argument("FILE", "a spec file, or package.module:function", name="model")
@cluster_options
@replica_options
@options(
    option("--cost NAME", "package.module:function with @fastplan.shard_cost"),
    option("--objective NAME", "package.module:function with @fastplan.plan_objective"),
    trust_option,
    section="custom costs",
)
@options(
    option("-o, --output FILE", "write the plan as JSON"),
    html_option,
    json_option("print the result as JSON"),
    option("--quiet", "print only errors"),
    section="output",
)
@options(
    cache_options,
    option("--previous FILE", "a previous plan; the new plan moves few bytes from it"),
    option("--max-moved PART", "share of bytes that may move, beyond those that must; default 5%"),
    option("--slack PART", "how far the rating may be above a plan from scratch; default 1%"),
    section="older plans",
)
@optimize_options
@rule_options
def plan(args: Args) -> int:
    """Plans a model on a cluster: the plan that TorchRec's planner would return there. A spec file
    needs neither torch nor a GPU; `package.module:function` names a real model, by a function that
    returns module, (module, sharders) or (module, sharders, constraints). --optimize gives a better
    plan and a proven lower bound; Ctrl-C returns the best plan so far, with exit code 130.
    --replica-groups plans for DMPCollection: the plan is then that of one group.
    """
    if args.output == "-":
        raise UsageError("-o takes the name of a file, not `-`; --json prints the plan")
    check_outputs(
        args.output, args.html, inputs=[args.model, args.sku, args.previous, args.statistics]
    )
    check_replaced(plan=args.output, page=args.html)
    settings, policy, replicas = optimization(args), _policy(args), replication(args)
    spec = _with_functions(load_target(args), args)
    from fastplan.model.job import DoesNotFit

    cache = _open_cache(args)
    try:
        result = _plan(args, spec, cache, settings, policy, replicas)
    except DoesNotFit as why:
        _print(args, spec.name, {"fits": False, "model": spec.name, "reason": str(why)}, str(why))
        return NO
    if result.cache.status == "failed":
        warn(f"warning: the cache failed: {result.cache.reason}")
    if result.record is None:
        _print_infeasible(args, result)
        return NO
    hardware = spec.topology.hardware
    found = result.plan({"sku": hardware.name} if hardware is not None else None)
    print_and_write(lambda: _show(args, found, result), lambda: _write(args, found))
    return INTERRUPTED if result.interrupted else OK


def _show(args: Args, plan: Plan, result: Result) -> None:
    if args.json:
        from fastplan.report.plan_text import inspect_json

        facts = {"fits": True, **inspect_json(plan)}
        if result.replan is not None:
            from fastplan.report.plan_text import replan_json

            facts["replan"] = replan_json(result.replan)
        print_json(facts | _replication_facts(result))
    elif not args.quiet:
        from fastplan.report.plan_text import inspect_text

        print(inspect_text(plan, style=style()), end="")
        if result.replan is not None:
            from fastplan.report.plan_text import replan_lines

            print("", *replan_lines(result.replan), sep="\n")
        if result.replication is not None:
            from fastplan.report.replica_text import replication_lines

            print("", *replication_lines(result.replication, style()), sep="\n")


def _replication_facts(result: Result) -> dict[str, Any]:
    if result.replication is None:
        return {}
    from fastplan.report.replica_text import replication_json

    return {"replication": replication_json(result.replication)}


def _open_cache(args: Args) -> Cache | None:
    if args.no_cache:
        return None
    from fastplan.cache.plan_cache import open_cache

    try:
        return open_cache(args.cache, timeout=30.0)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _policy(args: Args) -> Replan | None:
    """Returns the policy for following the plan of --previous, if given."""
    given = {"max_moved": args.max_moved, "slack": args.slack}
    parts: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if parts and args.previous is None:
        raise UsageError(f"--{next(iter(parts)).replace('_', '-')} is for --previous FILE")
    if args.previous is None:
        return None
    from fastplan.planning.policy import Replan

    try:
        return Replan(**parts)
    except ValueError as error:
        text = str(error)
        for name in parts:
            text = text.replace(f"`{name}`", f"--{name.replace('_', '-')}")
        raise UsageError(text) from None


def _plan(
    args: Args,
    spec: ModelSpec,
    cache: Cache | None,
    settings: Optimize | None,
    policy: Replan | None,
    replicas: Replicas | None,
) -> Result:
    """Plans the spec, or follows the plan of --previous."""
    arguments: dict[str, Any] = {"cache": cache, "optimize": settings, "replan": policy}
    if args.previous is not None:
        from fastplan.plans.file import read_plan

        arguments["previous"] = read_plan(args.previous)
    seconds = None if settings is None else settings.time_budget
    with Countdown("improving the plan", seconds):
        if replicas is None:
            from fastplan.planning.specs import plan_job
            from fastplan.spec.lower import lower

            result = plan_job(lower(spec, trust=args.trust_code), **arguments)
        else:
            from fastplan.model.replicas import ReplicaGroupsError
            from fastplan.planning.replicas import plan_replicas

            with naming_options(
                ReplicaGroupsError, use_inter_host_allreduce="inter-host-allreduce"
            ):
                result = plan_replicas(spec, replicas, trust=args.trust_code, **arguments)
    if result.replication is not None:
        for table, reason in result.replication.not_synced.items():
            warn(f"warning: table {table}: {reason}")
    if result.not_optimized:
        warn(f"warning: this is TorchRec's plan: {result.not_optimized}")
    if result.interrupted:
        report_interrupt("; this is the best plan so far")
    return result


def _with_functions(spec: ModelSpec, args: Args) -> ModelSpec:
    """Returns the spec with the functions of the command line, which need no --trust-code."""
    if args.cost is None and args.objective is None:
        return spec
    from dataclasses import replace

    from fastplan.model.references import is_reference

    for given in ("cost", "objective"):
        name = getattr(args, given)
        if name is not None and not is_reference(name):
            raise CommandError(f"--{given} must be package.module:function, not {name!r}")
    if args.cost is not None:
        from fastplan.costs.functions import find_cost

        spec = replace(spec, shard_cost=find_cost(args.cost))
    if args.objective is not None:
        from fastplan.costs.functions import find_objective

        spec = replace(spec, objective=find_objective(args.objective))
    return spec


def _write(args: Args, plan: Plan) -> None:
    if args.output:
        from fastplan.plans.file import write_plan

        write_plan(plan, args.output)
    if args.html:
        write_page([plan], args.html)
    if not args.json and not args.quiet:
        print_written(args.output, args.html)


def _print_infeasible(args: Args, result: Result) -> None:
    from fastplan.planning.describe import shortage_of
    from fastplan.report.units import format_count
    from fastplan.sweep.memory import explain_shortage

    job = result.job
    assert job.request is not None
    name = job.name
    lack, words = explain_shortage(result)
    if lack is not None:
        words += f"; {shortage_of(result).largest}"
    tables = format_count(len(job.request.tables), "table")
    ranks = format_count(len(job.cluster.rank_hbm), "rank")
    facts = {"fits": False, "model": name, "fingerprint": result.key.fingerprint, "reason": words}
    facts |= _replication_facts(result)
    _print(args, name, facts | (lack or {}), f"no plan of {tables} fits on {ranks}: {words}")


def _print(args: Args, name: str, facts: dict[str, object], words: str) -> None:
    if args.json:
        print_json(facts)
    elif not args.quiet:
        print(escape_name(f"{name}: {words}."))
        print(
            "Try more ranks, a SKU with more memory, a smaller batch or `--precision fp16`; "
            "`fastplan precompute` finds the smallest cluster that fits."
        )


@command("export", EXPORT_EXAMPLES)
@argument("MODEL", "package.module:function", name="model")
@cluster_options
@option("-o, --output FILE", "default: print YAML")
def export(args: Args) -> int:
    """Exports a real model to a spec file, which gives the same plan with the same fingerprint,
    even without TorchRec.
    """
    if not is_function(args.model):
        raise CommandError(f"{args.model} is not package.module:function")
    check_outputs(args.output, inputs=[args.sku, args.statistics])
    check_replaced(spec=args.output)
    from fastplan.report.units import format_count
    from fastplan.spec.cluster import check_cluster
    from fastplan.spec.write import spec_text, write_spec

    spec = load_target(args)
    check_cluster(spec)
    if args.output is None:
        print(spec_text(spec), end="")
    else:
        write_spec(spec, args.output)
        report_written(args.output, f" ({format_count(len(spec.tables), 'table')})")
    return OK
