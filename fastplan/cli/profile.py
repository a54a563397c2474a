"""`fastplan profile`: what the ids of a model look like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fastplan.cli.errors import INTERRUPTED, OK, CommandError, UsageError
from fastplan.cli.options import html_option, json_option, load_numpy
from fastplan.cli.output import (
    Progress,
    check_outputs,
    print_json,
    print_written,
    report_interrupt,
    table,
    warn,
)
from fastplan.cli.parser import Args, argument, command, option, options
from fastplan.cli.values import positive

if TYPE_CHECKING:
    from fastplan.model.ids import IdStatistics
    from fastplan.profile.run import Settings, Summaries
    from fastplan.spec.model import ModelSpec

EXAMPLES = """
fastplan profile model.yaml data/*.parquet -o ids.json --html ids.html
fastplan profile model.yaml --dataset mypkg.data:batches --batches 1000 -o ids.json
fastplan profile model.yaml data/*.parquet --shard 0/2 --state part0 -o /dev/null
fastplan profile model.yaml --merge part0 part1 -o ids.json
"""


@command("profile", EXAMPLES)
@argument("FILE", "a spec file", name="model")
@argument("[FILE...]", "Parquet or npz files, in the order of training", name="files")
@option("-o, --output FILE", "write the statistics as JSON", required=True)
@options(
    option("--dataset NAME", "package.module:function(rank, ranks) that yields KeyedJaggedTensors"),
    option("--batches N", "the most batches of --dataset", read=positive),
    option("--shard I/N", "profile only one part of the data: 0/N to N-1/N", default=(0, 1)),
    option("--merge FILE...", "stored profiles of several workers, instead of data"),
    section="data",
)
@options(
    option("--jobs N", "processes; each profiles a part of the files", read=positive),
    option("--state FILE", "store the profile here and keep it; default: OUTPUT.state until done"),
    option("--limit N", "ids that each table follows, a power of two", read=positive),
    section="work",
)
@options(html_option, json_option("print the figures as JSON"), section="output")
def profile(args: Args) -> int:
    """Profiles the ids of a model: pooling, distinct ids by batch size, misses by cache size, the
    share of the hottest rows and the skew of each table. A column belongs to the table that has a
    feature of its name. Run it again after an interrupt to resume. docs/profile.md has the rules.
    """
    _check(args)
    load_numpy()
    from fastplan.profile.run import remove_states, statistics_by_table, way_on
    from fastplan.profile.sources import ProfileError
    from fastplan.profile.text import outside_notes
    from fastplan.spec.ids import write_statistics
    from fastplan.spec.read import read_spec

    spec = read_spec(args.model)
    state = args.state or (f"{args.output}.state" if _is_file(args.output) else None)
    try:
        found = _summaries(args, spec, state)
    except ProfileError as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        report_interrupt(f". {way_on(state, args.jobs or 1)}.")
        return INTERRUPTED
    if not found:
        raise CommandError("the data have no ids")
    try:
        statistics = statistics_by_table(found)
    except ProfileError as error:
        raise CommandError(str(error)) from error
    write_statistics(statistics, args.output)
    if state is not None and args.state is None:
        remove_states(state)
    _show(args, spec, statistics)
    for note in outside_notes(found, spec):
        warn(note)
    return OK


def _check(args: Args) -> None:
    """Raises for options that don't go together."""
    given = [bool(args.files), args.dataset is not None, bool(args.merge)]
    if sum(given) != 1:
        raise UsageError("give files, --dataset or --merge, one of the three")
    if args.batches is not None and args.dataset is None:
        raise UsageError("--batches is for --dataset")
    if args.jobs is not None and not args.files:
        raise UsageError("--jobs is for files; run a command for each --shard of a dataset")
    inputs = [args.model, *args.files, *(args.merge or ())]
    check_outputs(args.output, args.html, args.state, inputs=inputs)


def _is_file(path: str) -> bool:
    return os.path.isfile(path) or not os.path.exists(path)


def _summaries(args: Args, spec: ModelSpec, state: str | None) -> Summaries:
    from fastplan.cli.errors import naming_options
    from fastplan.profile.run import Settings, profile_function, stored_summaries
    from fastplan.profile.sources import ProfileError, features_of

    if args.merge:
        return stored_summaries(args.merge)
    with naming_options(ProfileError):
        settings = Settings(limit=args.limit, state=state)
    if args.dataset is None:
        return _of_files(args, features_of(spec), settings)
    with Progress("profiling", args.batches or 1) as bar:
        return profile_function(
            features_of(spec),
            args.dataset,
            settings,
            part=args.shard,
            batches=args.batches,
            progress=lambda done, total: bar.reach(done) if total else None,
        )


def _of_files(args: Args, features: dict[str, tuple[str, ...]], settings: Settings) -> Summaries:
    from fastplan.profile.run import profile_files

    part, parts = args.shard
    files = args.files[len(args.files) * part // parts : len(args.files) * (part + 1) // parts]
    if not files:
        raise UsageError(f"--shard {part}/{parts} has none of the {len(args.files)} files")
    with Progress("profiling", 1000) as bar:
        return profile_files(
            features,
            files,
            settings,
            executor=args.jobs or 1,
            progress=lambda done, total: bar.reach(1000 * done // (total or 1)),
        )


def _show(args: Args, spec: ModelSpec, statistics: dict[str, IdStatistics]) -> None:
    from fastplan.profile import text

    batch = spec.batch_size * (spec.topology.world_size or 1)
    if args.html is not None:
        from fastplan.files.storage import replace_file
        from fastplan.profile.html import html_page

        replace_file(args.html, [html_page(spec, statistics).encode()])
    if args.json:
        print_json(text.to_json(statistics, batch))
        return
    rows = [text.table_cells(name, ids, batch) for name, ids in statistics.items()]
    print("\n".join(table(text.TITLES, rows, text.ALIGN)))
    print("\n".join(text.notes(statistics, batch)))
    print_written(args.output, args.html)
