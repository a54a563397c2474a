"""`fastplan ett gate`: tells CI whether starts have become slower."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastplan.cli.errors import NO, OK, CommandError
from fastplan.cli.ett_fleet import database_options, ett, read_fleet, select_options, selected
from fastplan.cli.options import json_option
from fastplan.cli.output import print_json, style, warn
from fastplan.cli.parser import Args, argument, option
from fastplan.cli.values import age, part, utf8_name

__all__ = ["ett"]

_DEFAULT = 0.05


@ett.action(
    "gate",
    "compare the jobs before and after a change, for CI: exit code 2 for a regression",
    "fastplan ett gate before/ after/ --phase plan --max-regression 5%\n"
    "fastplan ett gate /shared/runs new-runs/ --last 14d --within model",
)
@argument(
    "BEFORE",
    "recordings before the change: a directory, file or URL",
    name="before",
    read=utf8_name,
)
@argument("AFTER", "recordings after it", name="after", read=utf8_name)
@option(
    "--phase NAME",
    "a phase, time_to_start or time_to_recover; can be repeated; default: time_to_start",
    multiple=True,
)
@option(
    "--max-regression PART", "the slowdown that is accepted; default: 5%", name="allowed", read=part
)
@option("--last AGE", "of BEFORE only the jobs of this time before the first of AFTER", read=age)
@option("--within LABEL", "compare jobs with others of the same label, such as model")
@select_options
@database_options
@json_option()
def _gate(args: Args) -> int:
    from fastplan.ett.fleet.compare import START, compare_jobs, phases_of_start

    selection = selected(args)
    jobs, _ = read_fleet(args, [args.before, args.after])
    before, after = _sides(args, selection.apply(jobs))
    allowed = _DEFAULT if args.allowed is None else args.allowed
    names = list(dict.fromkeys(args.phase)) or [START]
    found = compare_jobs(before, after, names, allowed=allowed, within=args.within)
    missing = [name for name in names if name not in {each.name for each in found}]
    if missing:
        known = ", ".join(phases_of_start([*before, *after])) or "none"
        raise CommandError(f"--phase {missing[0]}: not on both sides; phases of starts are {known}")
    inner = compare_jobs(before, after, phases_of_start(after), allowed=allowed, within=args.within)
    inner = [each for each in inner if each.name not in names]
    regressed = [each.name for each in found if each.regressed]
    if args.json:
        print_json(
            {
                "regressed": regressed,
                "max_regression": allowed,
                "figures": [asdict(each) for each in found],
                "phases": [asdict(each) for each in inner],
            }
        )
    else:
        from fastplan.ett.fleet.gate_text import gate_text

        print(gate_text(found, inner, allowed, style()), end="")
    return NO if regressed else OK


def _sides(args: Args, jobs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The jobs before and after. Those of AFTER are never in BEFORE."""
    from fastplan.ett.fleet.places import clean_root

    root, other = clean_root(args.after), clean_root(args.before)
    after = [job for job in jobs if _is_below(job.place, root)]
    before = [job for job in jobs if _is_below(job.place, other) and not _is_below(job.place, root)]
    if args.last is not None:
        begins = [job.begin for job in after if job.begin is not None]
        if not begins:
            raise CommandError(f"{args.after}: no job has a date, which --last needs")
        first = min(begins)
        undated = sum(job.begin is None for job in before)
        if undated:
            warn(f"{undated} jobs of {args.before} have no date and are left out")
        before = [
            job
            for job in before
            if job.begin is not None and first - args.last <= job.begin < first
        ]
    for side, path in ((before, args.before), (after, args.after)):
        if not side:
            raise CommandError(f"{path}: no job to compare; see --where, --since and --last")
    return before, after


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")
