"""`fastplan ett`: where a job's time went, and what planning has to do with it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from fastplan.cli.amounts import seconds
from fastplan.cli.errors import OK, CommandError, naming_options
from fastplan.cli.outputs import check_outputs
from fastplan.cli.parser import add_actions

HELP = """
Effective Training Time: the share of a job's time in which it trained on new data, and where the
rest went. Jobs record themselves with FASTPLAN_ETT=DIR, `ett.install()` and `ett.step(number)`.
"""
EXAMPLES = """
fastplan ett report runs/
fastplan ett report runs/ --html ett.html --trace ett.trace.json
fastplan ett diff before/ after/
fastplan ett project --work 3d --failures 12 --start 5m --lost 15m --plan 95s --loader 21s
"""


def add_arguments(parser: ArgumentParser) -> None:
    add = add_actions(parser, _add_json)
    report = add("report", _report, "show where a job's time went", "fastplan ett report runs/")
    report.add_argument("runs", metavar="DIR", help="what FASTPLAN_ETT was")
    report.add_argument("--html", metavar="FILE", help="write a page to look at in a browser")
    report.add_argument("--trace", metavar="FILE", help="write a Chrome trace for ui.perfetto.dev")
    report.add_argument("--tensorboard", metavar="DIR", help="write TensorBoard scalars")

    told = "show what changed from one job to another"
    diff = add("diff", _diff, told, "fastplan ett diff before/ after/")
    diff.add_argument("before", metavar="DIR", help="a recorded job")
    diff.add_argument("after", metavar="DIR", help="another")

    told = "work out what faster planning would gain a job"
    example = "fastplan ett project --from runs/ --loader 21s --fastplan 400ms --cached 10ms"
    project = add("project", _project, told, f"{EXAMPLES.strip().splitlines()[-1]}\n{example}")
    project.add_argument("--from", dest="runs", metavar="DIR", help="take them from a recorded job")
    project.add_argument("--work", type=seconds, metavar="TIME", help="W: training, all of it")
    project.add_argument("--failures", type=float, metavar="N", help="F")
    project.add_argument(
        "--start", type=seconds, metavar="TIME", help="B: a start but its planning"
    )
    project.add_argument(
        "--lost", type=seconds, metavar="TIME", help="L: work that a failure loses"
    )
    project.add_argument("--plan", type=seconds, metavar="TIME", help="P: TorchRec's planning")
    project.add_argument("--loader", type=seconds, metavar="TIME", help="P with a PlanLoader hit")
    project.add_argument("--fastplan", type=seconds, metavar="TIME", help="P of fastplan, no cache")
    project.add_argument("--cached", type=seconds, metavar="TIME", help="P of fastplan's cache hit")


def _add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: Namespace) -> int:
    code: int = args.act(args)
    return code


def _report(args: Namespace) -> int:
    from fastplan.ett.arithmetic import job_report
    from fastplan.ett.building import load
    from fastplan.ett.reading import jobs_in
    from fastplan.ett.text import report_json, report_text

    check_outputs(args.html, args.trace)
    jobs = [load(directory) for directory in jobs_in(args.runs)]
    writes = [name for name in ("html", "trace", "tensorboard") if getattr(args, name)]
    if writes and len(jobs) > 1:
        names = ", ".join(job.source for job in jobs)
        raise CommandError(f"--{writes[0]} is about one job, and there are several: {names}")
    reports = [job_report(job) for job in jobs]
    for name in writes:
        written = _WRITERS[name](jobs[0], reports[0], getattr(args, name))
        if not args.json:
            print(f"written: {written}")
    if args.json:
        found = [report_json(report) for report in reports]
        _print_json(found[0] if len(found) == 1 else found)
    elif not writes:
        print("\n".join(report_text(report, _style()) for report in reports), end="")
    return OK


def _write_html(job: Any, report: Any, path: str) -> str:
    from fastplan.ett.html import html_report
    from fastplan.files import replace_file

    replace_file(path, [html_report(job, report).encode()])
    return path


def _write_trace(job: Any, report: Any, path: str) -> str:
    import json

    from fastplan.ett.export import chrome_trace
    from fastplan.files import replace_file

    replace_file(path, [json.dumps(chrome_trace(job)).encode()])
    return f"{path} (open it at ui.perfetto.dev)"


def _write_scalars(job: Any, report: Any, directory: str) -> str:
    from fastplan.ett.export import write_scalars

    write_scalars(report, directory)
    return directory


_WRITERS = {"html": _write_html, "trace": _write_trace, "tensorboard": _write_scalars}


def _diff(args: Namespace) -> int:
    from fastplan.ett.arithmetic import read_report
    from fastplan.ett.text import diff_json, diff_text

    before, after = read_report(args.before), read_report(args.after)
    if args.json:
        _print_json(diff_json(before, after))
    else:
        print(diff_text(before, after, _style()), end="")
    return OK


def _project(args: Namespace) -> int:
    from fastplan.ett.projection import Costs, Plans, project_json, project_text

    given = {
        name: getattr(args, name)
        for name in ("work", "failures", "start", "lost", "plan")
        if getattr(args, name) is not None
    }
    values = {**_measured(args.runs), **given}
    taken: dict[str, float] = {
        name: values.pop(name) for name in ("cold", "cached") if name in values
    }
    missing = [name for name in ("work", "failures", "start", "lost", "plan") if name not in values]
    if missing:
        raise CommandError(_missing(missing, args.runs, taken))
    for name, option in (("cold", args.fastplan), ("cached", args.cached)):
        if option is not None:
            taken[name] = option
    with naming_options(ValueError):
        full = values.pop("plan")
        costs = Costs(**values)
        plans = Plans(full=full, loader=args.loader, **taken)
    if args.json:
        _print_json(project_json(costs, plans))
    else:
        print(project_text(costs, plans, _style()), end="")
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
        plans["plan"] = whole if plans else plan  # unseen restarts have planned, too
    return {**asdict(costs), **plans}


def _missing(names: list[str], runs: str | None, taken: dict[str, float]) -> str:
    """What must be given; a job that did not plan with TorchRec can't tell what that takes."""
    if runs is None:
        return f"--{' and --'.join(names)} must be given, or a recorded job with --from DIR"
    from fastplan.report.units import format_seconds

    told = " and ".join(
        f"{format_seconds(seconds)} {'with' if name == 'cached' else 'without'} a hit of its cache"
        for name, seconds in taken.items()
    )
    seen = f"its planning is fastplan's, {told}" if taken else "no planning was recorded"
    return f"{runs}: {seen}; give what TorchRec's planning takes with --plan"


def _style() -> Any:
    from sys import stdout

    from fastplan.report.terminal import Style

    return Style.of(stdout)


def _print_json(document: Any) -> None:
    import json

    print(json.dumps(document, indent=2))
