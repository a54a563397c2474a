"""`fastplan compare`: what changes from one plan to another."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from fastplan.cli.errors import NO, OK, CommandError, UsageError
from fastplan.cli.outputs import check_outputs
from fastplan.cli.plan_files import add_reading_arguments, read
from fastplan.cli.targets import add_trust_argument

if TYPE_CHECKING:
    from fastplan.cli.measurements import Measurements
    from fastplan.model.job import Job
    from fastplan.model.plan import Plan
    from fastplan.spec.model import ModelSpec

HELP = (
    "Shows what changes from one plan to the next: tables that are re-sharded or moved, the bytes "
    "that ranks must receive, ratings, memory and load. The exit code is 0 if the plans are the "
    "same and 2 if they differ."
)
EXAMPLES = """
fastplan compare before.json after.json
fastplan compare plan-8.json plan-16.json --force
fastplan compare a.json b.json c.json --html plans.html
fastplan compare a.json b.json --measured runs/ --html plans.html
fastplan compare a.json b.json --measured runs/ --model model.yaml --sku my-cluster.yaml
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
    parser.add_argument(
        "--model",
        metavar="SPEC",
        help="estimate all plans anew, as plans of this model on as many ranks as they are for",
    )
    parser.add_argument("--sku", metavar="NAME", help="with --model: on this hardware")
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a report to look at in a browser")
    add_reading_arguments(parser)


def run(args: Namespace) -> int:
    if len(args.plans) < 2:
        raise UsageError("two plans or more are needed (see `fastplan compare --help`)")
    from fastplan.report.comparison import compare, unique_labels

    if args.sku and not args.model:
        raise UsageError("--sku needs --model: plans are estimated anew from a spec")
    check_outputs(args.html, inputs=[*args.plans, args.model, args.sku])
    plans = _estimated_anew([read(path, args) for path in args.plans], args)
    labels = unique_labels(args.plans)
    tried = _measurements(args.measured, plans, labels)
    measured = None if tried is None else tried.by_label
    comparison = compare(plans, labels=labels, measured=measured, force=args.force)
    if args.html:
        from fastplan.cli.pages import write_page

        write_page(plans, args.html, comparison, tried.findings() if tried else ())
    if args.json:
        from json import dumps

        from fastplan.report.compare_text import compare_json

        found = {"agreement": tried.json()} if tried else {}
        print(dumps(compare_json(comparison) | found, indent=2))
    else:
        from sys import stdout

        from fastplan.report.compare_text import compare_text
        from fastplan.report.terminal import Style

        style = Style.of(stdout)
        print(compare_text(comparison, tables=args.tables, style=style), end="")
        if tried:
            print(f"\n{tried.text(style)}", end="")
        if args.html:
            print(f"\nwritten: {args.html}")
    return OK if comparison.same else NO


def _estimated_anew(plans: list[Plan], args: Namespace) -> list[Plan]:
    """The plans with one model's and one cluster's estimates, if that is asked for."""
    if not args.model:
        return plans
    from fastplan.measure.rerate import rerated
    from fastplan.report.estimates import EstimateUnavailable
    from fastplan.spec.lower import lower
    from fastplan.spec.read import read_spec
    from fastplan.spec.variants import on_cluster

    spec = on_cluster(read_spec(args.model), sku=args.sku)
    jobs: dict[tuple[int, int | None], Job] = {}
    found = []
    for path, plan in zip(args.plans, plans, strict=True):
        ranks, local = shape = _shape(path, plan, plans, spec, args.model)
        if shape not in jobs:
            cluster = on_cluster(spec, world_size=ranks, local_world_size=local)
            jobs[shape] = lower(cluster, trust=args.trust_code)
        try:
            found.append(rerated(plan, jobs[shape]))
        except EstimateUnavailable as problem:
            raise CommandError(f"{path} is no plan of {args.model}: {problem}") from problem
    return found


def _shape(
    path: str, plan: Plan, plans: list[Plan], spec: ModelSpec, model: str
) -> tuple[int, int | None]:
    """The plan's ranks, and those of a host where that is known. The spec must not say otherwise.

    A bare layout does not tell of ranks that it leaves empty: the spec, or another plan, does."""
    topology = spec.topology
    local: int | None
    if plan.basis is not None:
        ranks, local = plan.ranks, plan.basis.cluster.local_world_size
    else:
        others = (other.ranks for other in plans if other.basis is not None)
        ranks = max(plan.ranks, topology.world_size or next(others, 0))
        local = plan.layout.ranks_per_host or topology.local_world_size
    for name, own, told in (
        ("world_size", ranks, "ranks"),
        ("local_world_size", local, "ranks per host"),
    ):
        given = getattr(topology, name)
        if given is not None and own is not None and given != own:
            raise CommandError(
                f"{path} is a plan for {own} {told}, and {model} has {given} as "
                f"`topology.{name}`: leave that out, or give the plan's spec"
            )
    return ranks, local


def _measurements(folder: str | None, plans: list[Plan], labels: list[str]) -> Measurements | None:
    if folder is None:
        return None
    from fastplan.cli.measurements import Measurements

    return Measurements(folder, plans, labels)
