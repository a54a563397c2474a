"""`fastplan ett fleet`: Effective Training Time of many jobs."""

from __future__ import annotations

import os
from typing import Any

from fastplan.cli.errors import OK, CommandError, UsageError
from fastplan.cli.ett import ett
from fastplan.cli.options import json_option
from fastplan.cli.output import (
    Progress,
    check_outputs,
    check_replaced,
    print_json,
    print_written,
    style,
    warn,
)
from fastplan.cli.parser import Args, Decorator, argument, option, options
from fastplan.cli.values import utf8_name

__all__ = ["ett"]

_WORST_PAGES = 20
_MOST_PROBLEMS = 20  # others may have put any number of bad links into a shared folder
_LINE_SECONDS = 10.0  # between two lines about progress in a file
select_options: Decorator = options(
    option(
        "--where LABEL=VALUE",
        "only jobs with this label; can be given several times",
        multiple=True,
    ),
    option("--since DATE", "only jobs that began at 2026-01-31 or later, or in the last 14d"),
    option("--until DATE", "only jobs that began before this"),
    option("--path-labels RULE", "labels from paths, such as {team}/{job} or {round}-*.log"),
    option("--launches FILE", "queueing, from sacct or kubectl; can be repeated", multiple=True),
    section="which jobs",
)
database_options: Decorator = options(
    option(
        "--db FILE",
        "the database; default: FASTPLAN_FLEET, or one in the cache directory",
        read=utf8_name,
    ),
    option("--jobs N", "processes that read; default: one per core", name="workers"),
    section="reading",
)


@ett.action(
    "fleet",
    "show where the time of many jobs went",
    "fastplan ett fleet /shared/runs\n"
    "fastplan ett fleet s3://bucket/runs --by team --since 14d --html fleet.html\n"
    "fastplan ett fleet mlperf/ --path-labels '{round}-*' --by round --json",
)
@argument(
    "PATH...",
    "directories or URLs of recordings, MLPerf logs and others",
    name="paths",
    read=utf8_name,
)
@option("--by LABEL", "a table by this label; can be repeated", multiple=True)
@option("--html FILE", "write a page to look at in a browser", read=utf8_name)
@option("--parquet FILE", "write a row per job")
@option("--forget-gone", "delete jobs whose files are gone from the database")
@select_options
@database_options
@json_option()
def _fleet(args: Args) -> int:
    from fastplan.ett.fleet.text import fleet_text

    database = args.db or _usual_database()
    inputs = [*args.paths, *args.launches, database, f"{database}.lock", f"{database}.wal"]
    check_outputs(args.html, args.parquet, inputs=inputs)
    check_replaced(page=args.html, parquet=args.parquet)
    selection = selected(args)
    jobs, done = read_fleet(args, list(args.paths), forget=args.forget_gone)
    jobs = selection.apply(jobs)
    if not jobs:
        raise CommandError(_nothing(args, done))
    written = _write(args, jobs)
    if args.json:
        from fastplan.ett.fleet.jobs import job_json
        from fastplan.ett.fleet.summary import summarise, summary_json

        print_json(
            {
                "jobs": [job_json(job) for job in jobs],
                "summary": summary_json(summarise(jobs)),
                "read": done.read,
                "unchanged": done.unchanged,
                "gone": list(done.gone),
                "problems": list(done.problems),
            }
        )
        return OK
    print(fleet_text(jobs, args.by, style()), end="")
    if done.gone and not args.forget_gone:
        warn(f"{len(done.gone)} recordings are gone; their jobs are kept (see --forget-gone)")
    print_written(*written)
    return OK


def _write(args: Args, jobs: list[Any]) -> list[str]:
    """Writes the files that were asked for, and returns their names."""
    written = []
    if args.parquet:
        from fastplan.ett.fleet.parquet import write_parquet

        write_parquet(jobs, args.parquet)
        written.append(args.parquet)
    if args.html:
        from fastplan.ett.fleet.page import write_pages

        written += write_pages(jobs, args.html, _WORST_PAGES)
    return written


def selected(args: Args) -> Any:
    """Returns the selection of select_options.

    Raises:
        UsageError: A value is invalid.
    """
    import time

    from fastplan.ett.fleet.select import PathRule, Selection, parse_moment

    where = dict(part.partition("=")[::2] for part in args.where)
    for part in args.where:
        if "=" not in part:
            raise UsageError(f"--where must be LABEL=VALUE, such as team=ads, not {part!r}")
    now = time.time()
    moments: dict[str, float] = {}
    for name in ("since", "until"):
        text = getattr(args, name)
        if text is not None:
            try:
                moments[name] = parse_moment(text, now)
            except ValueError as error:
                raise UsageError(f"--{name} {error}") from error
    try:
        rule = None if args.path_labels is None else PathRule(args.path_labels)
    except ValueError as error:
        raise UsageError(f"--path-labels {error}") from error
    return Selection(rule=rule, where=where, **moments)


def read_fleet(args: Args, paths: list[str], *, forget: bool = False) -> tuple[list[Any], Any]:
    """Returns the jobs below some paths, and what was read for that."""
    from fastplan.ett.fleet.places import clean_root
    from fastplan.ett.fleet.store import FleetStore
    from fastplan.ett.fleet.update import update

    database = args.db or _usual_database()
    if database != ":memory:":
        folder = os.path.dirname(os.path.abspath(database))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            if args.db:
                raise
            warn(f"{folder}: {error.strerror}; what is read is not kept, unless --db names a file")
            database = ":memory:"
    store = FleetStore(database, warn)
    with _Reading() as reading:
        done = update(store, paths, workers=args.workers, progress=reading.advance)
    for problem in done.problems[:_MOST_PROBLEMS]:
        warn(problem)
    if len(done.problems) > _MOST_PROBLEMS:
        more = len(done.problems) - _MOST_PROBLEMS
        warn(f"{more:,} more paths can't be read; `fastplan ett fleet --json` lists all")
    if forget:
        store.forget(done.gone)
    jobs = store.jobs([clean_root(path) for path in paths])
    return _with_launches(jobs, args.launches), done


def _usual_database() -> str:
    from fastplan.ett.fleet.store import default_database

    try:
        return utf8_name(default_database())
    except ValueError as error:
        raise CommandError(f"FASTPLAN_FLEET: {error}") from error


def _with_launches(jobs: list[Any], files: tuple[str, ...]) -> list[Any]:
    if not files:
        return jobs
    from fastplan.ett.imports.launchers import LABELS, add_launches, read_launches

    launches = {}
    for path in files:
        with open(path, "rb") as file:
            try:
                launches.update(read_launches(file.read()))
            except ValueError as error:
                raise CommandError(f"--launches {path}: {error}") from error
    if not any(job.labels.get(name) in launches for job in jobs for name in LABELS):
        warn(f"--launches: no job has a label {' or '.join(LABELS)} that these files name")
    return add_launches(jobs, launches)


class _Reading(Progress):
    """Progress of reading. How much there is to read is known only at the end."""

    def __init__(self) -> None:
        super().__init__("reading recordings", 1)
        self._next = _LINE_SECONDS

    def reach(self, done: int) -> None:
        self._total = max(self._total, done)
        now = self._clock()
        if self._stream.isatty():
            super().reach(done)
        elif now - self._begin >= self._next:
            self._next = now - self._begin + _LINE_SECONDS
            print(self._state(now), file=self._stream, flush=True)
        self._done = done

    def _state(self, now: float) -> str:
        rate = self._done / max(1e-9, now - self._begin)
        return f"{self._what}: {self._done:,} places, {rate:,.0f}/s"


def _nothing(args: Args, done: Any) -> str:
    if args.where or args.since or args.until:
        return "no job has these labels and dates; try without --where, --since and --until"
    return (
        f"{', '.join(args.paths)}: no recordings ({done.read + done.unchanged} files and "
        "directories looked at); record jobs with FASTPLAN_ETT=DIR, or give MLPerf logs"
    )
