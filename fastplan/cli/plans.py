"""`fastplan inspect`, `compare` and `convert`: show, compare and convert plan files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import NO, OK, CommandError, UsageError, naming_options
from fastplan.cli.options import (
    html_option,
    json_option,
    read_plan,
    reading_options,
    sku_names,
    trust_option,
)
from fastplan.cli.output import (
    check_outputs,
    check_replaced,
    print_json,
    print_written,
    report_written,
    style,
    write_page,
)
from fastplan.cli.parser import Args, argument, command, option

if TYPE_CHECKING:
    from fastplan.measure.agreement import Agreement
    from fastplan.measure.results import Runs
    from fastplan.model.job import SpecJob
    from fastplan.model.plan import Plan
    from fastplan.spec.model import ModelSpec

INSPECT_EXAMPLES = """
fastplan inspect plan.json
fastplan inspect plan.json --ranks all --tables
fastplan inspect plan.json --html plan.html
fastplan inspect plan.json --replica-groups 8 --world-size 512
"""
COMPARE_EXAMPLES = """
fastplan compare before.json after.json
fastplan compare plan-8.json plan-16.json --force
fastplan compare a.json b.json c.json --html plans.html
fastplan compare a.json b.json --measured runs/ --html plans.html
fastplan compare a.json b.json --measured runs/ --model model.yaml --sku my-cluster.yaml
"""
CONVERT_EXAMPLES = """
fastplan convert plan.json -o plan --to torcheasyrec
fastplan convert dry_run.txt -o plan.json
fastplan convert plan.pickle -o plan.json --trust-pickle
"""
FORMATS = ("fastplan", "torcheasyrec", "pickle")


@command("inspect", INSPECT_EXAMPLES)
@argument("FILE", "a plan file", name="plan")
@option("--ranks {worst,all}", "ranks to show", default="worst")
@option("--tables", "list every table")
@option("--replica-groups N", "check the plan of one of N copies of the tables (2D parallelism)")
@option("--world-size N", "with --replica-groups: ranks of the job; default: N x those of the plan")
@option("--inter-host-allreduce", "with --replica-groups: consecutive ranks form a group")
@json_option()
@html_option
@reading_options
def inspect(args: Args) -> int:
    """Shows a plan on a page: its rating and worst rank, memory headroom, the load of the busiest
    ranks, and the tables that make the worst one slow. Costs are estimates, unless marked as
    measured. --replica-groups also checks that DMPCollection can use the plan. A plan of `fastplan
    plan --replica-groups` is always checked.
    """
    check_outputs(args.html, inputs=[args.plan])
    check_replaced(page=args.html)
    plan = read_plan(args.plan, args)
    _check_replicas(plan, args)
    from fastplan.report.plan_text import inspect_json, inspect_text

    if args.html:
        write_page([plan], args.html)
    if args.json:
        print_json(inspect_json(plan))
    else:
        print(inspect_text(plan, ranks=args.ranks, tables=args.tables, style=style()), end="")
        print_written(args.html)
    return OK


def _check_replicas(plan: Plan, args: Args) -> None:
    """Checks a plan of one replica group, if the command line or the plan's notes say that it is.

    Raises:
        UsageError: The ranks can't form such groups.
        ReplicaPlanError: DMPCollection can't use the plan.
    """
    if args.replica_groups is None and (args.world_size or args.inter_host_allreduce):
        name = "world-size" if args.world_size else "inter-host-allreduce"
        raise UsageError(f"--{name} is for --replica-groups")
    if args.replica_groups is None and "replica_groups" not in plan.notes:
        return
    from fastplan.model.replicas import ReplicaGroupsError
    from fastplan.plans.replicas import check_layout, noted_groups, planned_groups

    with naming_options(
        ReplicaGroupsError,
        groups="replica-groups",
        use_inter_host_allreduce="inter-host-allreduce",
    ):
        groups = (
            noted_groups(plan)
            if args.replica_groups is None
            else planned_groups(
                plan,
                args.replica_groups,
                world_size=args.world_size,
                use_inter_host_allreduce=args.inter_host_allreduce,
            )
        )
    check_layout(plan.layout, groups)


@command("compare", COMPARE_EXAMPLES)
@argument("FILE...", "plan files, the first one first", name="plans")
@option("--force", "compare plans of different models or clusters too")
@option("--tables", "list every changed table")
@option("--measured DIR", "show results of `fastplan measure` next to the estimates")
@option("--model FILE", "estimate all plans again with this spec, on the plans' number of ranks")
@option("--sku NAME", "with --model: on this hardware", complete=sku_names)
@trust_option
@json_option()
@html_option
@reading_options
def compare(args: Args) -> int:
    """Shows what changes from one plan to the next: tables that are re-sharded or moved, the bytes
    that ranks must receive, ratings, memory and load. The exit code is 0 if the plans are the same
    and 2 if they differ.
    """
    if len(args.plans) < 2:
        raise UsageError("two plans or more are needed (see `fastplan compare --help`)")
    if args.sku and not args.model:
        raise UsageError("--sku needs --model: plans are estimated again from a spec")
    check_outputs(args.html, inputs=[*args.plans, args.model, args.sku])
    check_replaced(page=args.html)
    plans = _reestimated([read_plan(path, args) for path in args.plans], args)
    from fastplan.report.compare_text import compare_json, compare_text
    from fastplan.report.comparison import compare, short_names, unique_labels

    labels = short_names(args.plans)
    tried = None if args.measured is None else Measurements(args.measured, plans, labels)
    measured = None if tried is None else tried.by_label
    comparison = compare(plans, labels=labels, measured=measured, force=args.force)
    if args.html:
        write_page(plans, args.html, comparison, tried.findings() if tried else ())
    if args.json:
        print_json(
            compare_json(comparison, labels=unique_labels(args.plans))
            | ({"agreement": tried.json()} if tried else {})
        )
    else:
        print(compare_text(comparison, tables=args.tables, style=style()), end="")
        if tried:
            print(f"\n{tried.text()}", end="")
        print_written(args.html)
    return OK if comparison.same else NO


def _reestimated(plans: list[Plan], args: Args) -> list[Plan]:
    """Returns the plans with estimates of one model and one cluster, if --model is given."""
    if not args.model:
        return plans
    from fastplan.measure.rerate import reestimate
    from fastplan.report.estimates import EstimateUnavailable
    from fastplan.spec.lower import lower
    from fastplan.spec.read import on_cluster, read_spec

    spec = on_cluster(read_spec(args.model), sku=args.sku)
    jobs: dict[tuple[int, int | None], SpecJob] = {}
    found = []
    for path, plan in zip(args.plans, plans, strict=True):
        ranks, local = shape = _shape(path, plan, plans, spec, args.model)
        if shape not in jobs:
            cluster = on_cluster(spec, world_size=ranks, local_world_size=local)
            jobs[shape] = lower(cluster, trust=args.trust_code)
        try:
            found.append(reestimate(plan, jobs[shape]))
        except EstimateUnavailable as problem:
            raise CommandError(f"{path} is not a plan for {args.model}: {problem}") from problem
    return found


def _shape(
    path: str, plan: Plan, plans: list[Plan], spec: ModelSpec, model: str
) -> tuple[int, int | None]:
    """Returns the number of ranks of a plan, and of a host if known. The spec must agree.

    A layout without a basis does not show empty ranks at its end: the spec or another plan does.
    """
    topology = spec.topology
    local: int | None
    if plan.basis is not None:
        ranks, local = plan.ranks, plan.basis.cluster.local_world_size
    else:
        others = (other.ranks for other in plans if other.basis is not None)
        ranks = max(plan.ranks, topology.world_size or next(others, 0))
        local = plan.layout.ranks_per_host or topology.local_world_size
    for name, own, unit in (
        ("world_size", ranks, "ranks"),
        ("local_world_size", local, "ranks per host"),
    ):
        given = getattr(topology, name)
        if given is not None and own is not None and given != own:
            raise CommandError(
                f"{path} is a plan for {own} {unit}, and {model} has {given} as "
                f"`topology.{name}`: remove that field, or give the plan's spec"
            )
    return ranks, local


class Measurements:
    """Measurements of plans, from a folder of `fastplan measure`."""

    by_label: Any

    def __init__(self, folder: str, plans: list[Plan], labels: list[str]) -> None:
        from fastplan.measure.agreement import agreement, measured_for
        from fastplan.measure.results import read_runs

        self._runs: Runs = read_runs(folder)
        self._agreement: Agreement = agreement(plans, labels, self._runs)
        self.by_label = measured_for(plans, labels, self._runs)

    def text(self) -> str:
        """Returns the measurements as text."""
        from fastplan.measure.text import agreement_text

        return agreement_text(self._agreement, self._runs, style())

    def json(self) -> dict[str, Any]:
        """Returns the measurements as JSON values."""
        from fastplan.measure.text import agreement_json

        return agreement_json(self._agreement, self._runs)

    def findings(self) -> list[str]:
        """Returns sentences for below the chart."""
        from fastplan.measure.text import order, warnings

        return [*order(self._agreement), *warnings(self._runs)]


@command("convert", CONVERT_EXAMPLES)
@argument("FILE", "a plan in any format that can be read", name="plan")
@option("-o, --output FILE", "the file to write", required=True)
@option("--to FORMAT", ", ".join(FORMATS), choices=FORMATS, default="fastplan")
@reading_options
def convert(args: Args) -> int:
    """Writes a plan in another format: a plan file, TorchEasyRec's JSON, or a pickled ShardingPlan,
    which needs TorchRec. Reads these, and the text and JSON that TorchRec prints of its plans.
    """
    from fastplan.plans.foreign import write_any
    from fastplan.report.units import format_count

    check_outputs(args.output, inputs=[args.plan])
    plan = read_plan(args.plan, args)
    write_any(plan, args.output, args.to)
    report_written(args.output, f" ({format_count(len(plan.layout.tables), 'table')})")
    return OK
