"""`fastplan ett`: shows where a job's time went, and the share of planning."""

from __future__ import annotations

from typing import Any

from fastplan.cli.errors import OK, CommandError, naming_options
from fastplan.cli.options import json_option
from fastplan.cli.output import (
    check_outputs,
    check_replaced,
    print_and_write,
    print_json,
    print_written,
    style,
)
from fastplan.cli.parser import Args, Group, argument, option
from fastplan.cli.values import number

HELP = """
Effective Training Time: the share of a job's time in which it trained on new data, and where the
rest went. Jobs record themselves with FASTPLAN_ETT=DIR, `ett.install()` and `ett.step(number)`.
"""
EXAMPLES = """
fastplan ett report runs/
fastplan ett report runs/ --html ett.html --trace ett.trace.json
fastplan ett diff before/ after/
fastplan ett interval --from runs/
fastplan ett project --work 3d --failures 12 --start 5m --lost 15m --plan 95s --loader 21s
"""


ett = Group("ett", help=HELP, examples=EXAMPLES)


@ett.action("report", "show where a job's time went", "fastplan ett report runs/")
@argument("DIR", "the directory that FASTPLAN_ETT named", name="runs")
@option("--html FILE", "write a page to look at in a browser")
@option("--trace FILE", "write a Chrome trace for ui.perfetto.dev")
@option("--tensorboard DIR", "write TensorBoard scalars")
@json_option()
def _report(args: Args) -> int:
    from fastplan.ett.arithmetic import job_report
    from fastplan.ett.building import load
    from fastplan.ett.reading import jobs_in
    from fastplan.ett.text import report_json, report_text

    check_outputs(args.html, args.trace)
    check_replaced(page=args.html, trace=args.trace)
    jobs = [load(directory) for directory in jobs_in(args.runs)]
    writes = [name for name in ("html", "trace", "tensorboard") if getattr(args, name)]
    if writes and len(jobs) > 1:
        names = ", ".join(job.source for job in jobs)
        raise CommandError(f"--{writes[0]} is about one job, and there are several: {names}")
    reports = [job_report(job) for job in jobs]

    def show() -> None:
        if args.json:
            found = [report_json(report) for report in reports]
            print_json(found[0] if len(found) == 1 else found)
        else:
            print("\n".join(report_text(report, style()) for report in reports), end="")

    def write() -> None:
        written = [_WRITERS[name](jobs[0], reports[0], getattr(args, name)) for name in writes]
        if not args.json:
            print_written(*written)

    print_and_write(show, write)
    return OK


def _write_html(job: Any, report: Any, path: str) -> str:
    from fastplan.ett.html import html_report
    from fastplan.files.storage import replace_file

    replace_file(path, [html_report(job, report).encode()])
    return path


def _write_trace(job: Any, report: Any, path: str) -> str:
    import json

    from fastplan.ett.export import chrome_trace
    from fastplan.files.storage import replace_file

    replace_file(path, [json.dumps(chrome_trace(job)).encode()])
    return f"{path} (open it at ui.perfetto.dev)"


def _write_scalars(job: Any, report: Any, directory: str) -> str:
    from fastplan.ett.export import write_scalars

    write_scalars(report, directory)
    return directory


_WRITERS = {"html": _write_html, "trace": _write_trace, "tensorboard": _write_scalars}


@ett.action("diff", "show what changed from one job to another", "fastplan ett diff before/ after/")
@argument("DIR", "a recorded job", name="before")
@argument("DIR", "another recorded job", name="after")
@option("--html FILE", "write a page to look at in a browser")
@json_option()
def _diff(args: Args) -> int:
    from fastplan.ett.arithmetic import read_report
    from fastplan.ett.text import diff_json, diff_text

    check_outputs(args.html)
    check_replaced(page=args.html)
    before, after = read_report(args.before), read_report(args.after)
    if args.html:
        from fastplan.ett.fleet.diff_page import diff_page
        from fastplan.files.storage import replace_file

        replace_file(args.html, [diff_page(before, after).encode()])
    if args.json:
        print_json(diff_json(before, after))
    else:
        print(diff_text(before, after, style()), end="")
        print_written(args.html)
    return OK


@ett.action(
    "interval",
    "work out how often to save a checkpoint",
    "fastplan ett interval --from runs/\n"
    "fastplan ett interval --save 60s --between-failures 8h --recover 10m --now 2h",
)
@option("--from DIR", "take these values from a recorded job", name="runs")
@option("--save TIME", "C: how long a checkpoint blocks training")
@option("--between-failures TIME", "M: mean time between failures")
@option("--recover TIME", "R: time from a failure to training")
@option("--upload TIME", "U: time until an asynchronous save can be restored")
@option("--now TIME", "the present interval, to compare with")
@option("--html FILE", "write a page with the curve")
@json_option()
def _interval(args: Args) -> int:
    from fastplan.ett.interval import FailureModel, interval_json
    from fastplan.ett.interval_text import interval_html, interval_text

    check_outputs(args.html)
    check_replaced(page=args.html)
    values = _recorded_failures(args.runs)
    given = {
        name: getattr(args, name) for name in ("save", "between_failures", "recover", "upload")
    }
    given["interval"] = args.now
    values.update({name: value for name, value in given.items() if value is not None})
    for name in ("save", "between_failures"):
        if name not in values:
            why = (
                "was not recorded" if args.runs else "must be given, or a recorded job with --from"
            )
            raise CommandError(f"--{name.replace('_', '-')} {why}")
    with naming_options(ValueError, interval="now"):
        model = FailureModel(**values)
    if args.html:
        from fastplan.files.storage import replace_file

        replace_file(args.html, [interval_html(model, args.runs or "").encode()])
    if args.json:
        print_json(interval_json(model))
    else:
        print(interval_text(model, style()), end="")
        print_written(args.html)
    return OK


def _recorded_failures(runs: str | None) -> dict[str, float]:
    if runs is None:
        return {}
    from fastplan.ett.arithmetic import read_report
    from fastplan.ett.interval import model_of_job

    return model_of_job(read_report(runs))


@ett.action(
    "project",
    "project the gain of faster planning",
    f"{EXAMPLES.strip().splitlines()[-1]}\n"
    "fastplan ett project --from runs/ --loader 21s --fastplan 400ms --cached 10ms",
)
@option("--from DIR", "take these values from a recorded job", name="runs")
@option("--work TIME", "W: total training time")
@option("--failures N", "F: number of failures", read=number)
@option("--start TIME", "B: time of a start without its planning")
@option("--lost TIME", "L: work that a failure loses")
@option("--save TIME", "C: how long a checkpoint blocks training")
@option("--interval TIME", "T: training time between checkpoints; L is T / 2 by default")
@option("--plan TIME", "P: time of TorchRec's planning")
@option("--loader TIME", "P if TorchRec's PlanLoader has the plan")
@option("--fastplan TIME", "P of fastplan without a cache")
@option("--cached TIME", "P of fastplan if its cache has the plan")
@json_option()
def _project(args: Args) -> int:
    from fastplan.ett.projection import Costs, Plans, project_json, project_text

    needed = ("work", "failures", "start", "lost", "plan")
    names = (*needed, "save", "interval")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    values = {**_measured(args.runs), **given}
    if args.interval is not None and args.lost is None:
        values["lost"] = args.interval / 2  # a failure is equally likely at any time between saves
    taken: dict[str, float] = {
        name: values.pop(name) for name in ("cold", "cached") if name in values
    }
    missing = [name for name in needed if name not in values]
    if missing:
        raise CommandError(_missing(missing, args.runs, taken))
    for name, given in (("cold", args.fastplan), ("cached", args.cached)):
        if given is not None:
            taken[name] = given
    with naming_options(ValueError):
        full = values.pop("plan")
        costs = Costs(**values)
        plans = Plans(full=full, loader=args.loader, **taken)
    if args.json:
        print_json(project_json(costs, plans))
    else:
        print(project_text(costs, plans, style()), end="")
    return OK


def _measured(runs: str | None) -> dict[str, float]:
    if runs is None:
        return {}
    from dataclasses import asdict

    from fastplan.ett.arithmetic import read_report
    from fastplan.ett.projection import costs_of_job, recorded_plans

    report = read_report(runs)
    try:
        costs, plan = costs_of_job(report)
    except ValueError as error:
        raise CommandError(str(error)) from error
    plans = recorded_plans(report)
    if "full" in plans:
        whole = plans.pop("full")
        plans["plan"] = whole if plans else plan  # restarts that were not recorded have planned too
    return {**asdict(costs), **plans}


def _missing(names: list[str], runs: str | None, taken: dict[str, float]) -> str:
    """Returns the message for missing values. A job without TorchRec's planner lacks its time."""
    if runs is None:
        return f"--{' and --'.join(names)} must be given, or a recorded job with --from DIR"
    from fastplan.report.units import format_seconds

    times = " and ".join(
        f"{format_seconds(seconds)} {'with' if name == 'cached' else 'without'} a hit of its cache"
        for name, seconds in taken.items()
    )
    seen = f"its planning is fastplan's, {times}" if taken else "no planning was recorded"
    return f"{runs}: {seen}; give the time of TorchRec's planning with --plan"
