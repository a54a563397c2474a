"""`fastplan precompute`: plans models on many clusters, and fills a cache with the plans."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastplan.cli.errors import FAILED, INTERRUPTED, OK, CommandError, UsageError
from fastplan.cli.options import (
    cache_options,
    json_option,
    optimization,
    optimize_options,
    trust_option,
)
from fastplan.cli.output import (
    Progress,
    check_outputs,
    check_replaced,
    print_and_write,
    print_json,
    print_written,
    report_interrupt,
    style,
    warn,
)
from fastplan.cli.parser import Args, argument, command, option, options
from fastplan.cli.values import positive, utf8_name

if TYPE_CHECKING:
    from fastplan.spec.model import ModelSpec
    from fastplan.sweep.rows import SweepResult
    from fastplan.sweep.sweep import Cell, Sweep

EXAMPLES = """
fastplan precompute sweep.yaml --cache s3://bucket/plans --results results.jsonl
fastplan precompute sweep.yaml --smallest
fastplan precompute sweep.yaml --cheapest 15 --price h100=2.5 --price a100-80=1.4
fastplan precompute sweep.yaml --html sweep.html --price h100=2.5
fastplan precompute sweep.yaml --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT --cache /shared
"""


@command("precompute", EXAMPLES)
@argument("FILE", "what to plan: models, skus, ...", name="sweep")
@cache_options
@option("--results FILE", "write results to this file, and reuse the results in it")
@option("--jobs N", "processes; default: one for each core", read=positive)
@option("--shard I/N", "run only one part of the cells: 0/N to N-1/N", default=(0, 1))
@option("--dry-run", "list the cells and plan nothing")
@trust_option
@optimize_options
@options(
    json_option("print everything as JSON"),
    option("--csv", "print a line for each cell", excludes="--json"),
    option(
        "--html FILE",
        "write a page with charts, and its plans to a folder next to it",
        read=utf8_name,
    ),
    option("--smallest", "show the smallest cluster that fits"),
    option(
        "--cheapest RATING", "show the cheapest cluster with at most this rating (or step) in ms"
    ),
    option("--price SKU=X", "price per rank and hour of a SKU", multiple=True),
    section="answers",
)
def precompute(args: Args) -> int:
    """Plans every combination of models, SKUs, world sizes, batch sizes and precisions that a sweep
    file lists, shows which fit and how fast they are, and stores the plans in a cache. Run it again
    to resume. docs/precompute.md has the fields of a sweep file.
    """
    if args.csv and (args.smallest or args.cheapest is not None):
        raise UsageError("--csv lists cells only; --json has --smallest and --cheapest, too")
    if args.price and args.cheapest is None and args.html is None:
        raise UsageError("--price is for --cheapest RATING and --html FILE")
    check_outputs(args.results, args.html, inputs=[args.sweep])
    check_replaced(page=args.html)
    settings = optimization(args)
    # Every worker would start as many threads as there are cores, and use none of them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastplan.sweep.file import read_sweep
    from fastplan.sweep.sweep import cells

    sweep = replace(read_sweep(args.sweep, _loader(args)), optimization=settings)
    chosen = cells(sweep, args.shard)
    prices = _prices(args, sweep, chosen)
    if args.dry_run:
        _list(args, chosen)
        return OK
    result = _run(args, sweep, chosen)
    if result is None:
        return INTERRUPTED
    print_and_write(lambda: _print(args, result, prices), lambda: _write_page(args, result, prices))
    return _exit_code(result)


def _run(args: Args, sweep: Sweep, chosen: list[Cell]) -> SweepResult | None:
    """Runs the sweep. Returns None if it was interrupted, after a message."""
    from fastplan.sweep.plan_files import folder_beside
    from fastplan.sweep.rows import Row
    from fastplan.sweep.run import run_sweep

    where = None if args.no_cache else args.cache or os.environ.get("FASTPLAN_CACHE") or None
    done = 0
    try:
        with Progress("planning", len(chosen)) as progress:

            def count(row: Row) -> None:
                nonlocal done
                done += 1
                progress.advance()

            return run_sweep(
                sweep,
                where,
                results=args.results,
                executor=args.jobs,
                shard=args.shard,
                progress=count,
                trust=args.trust_code,
                plans=None if args.html is None else folder_beside(args.html),
            )
    except KeyboardInterrupt:
        kept = " and ".join(place for place in (args.results, where) if place)
        way_on = f"They are in {kept}: run the same command again to resume."
        if not kept:
            way_on = (
                "Nothing was stored. With --results FILE or --cache WHERE the command can resume."
            )
        report_interrupt(f" after {done} of {len(chosen)} cells. {way_on}")
        return None


def _list(args: Args, chosen: list[Cell]) -> None:
    from fastplan.sweep.text import cell_lines, cells_csv, cells_json

    if args.json:
        print_json(cells_json(chosen))
    elif args.csv:
        print(cells_csv(chosen), end="")
    else:
        print("\n".join(cell_lines(chosen, style())))


def _print(args: Args, result: SweepResult, prices: dict[str, float]) -> None:
    from fastplan.sweep import text as sweep_text
    from fastplan.sweep.queries import cheapest, smallest_cluster

    smallest = smallest_cluster(result) if args.smallest else None
    cheap = None
    if args.cheapest is not None:
        cheap = cheapest(result, rating=args.cheapest, prices=prices)
    if args.csv:
        print(sweep_text.to_csv(result), end="")
    elif args.json:
        from dataclasses import asdict

        content: dict[str, Any] = sweep_text.to_json(result)
        if smallest is not None:
            content["smallest"] = [asdict(answer) for answer in smallest]
        if cheap is not None:
            content["cheapest"] = [asdict(answer) for answer in cheap]
        print_json(content, allow_nan=False)
    else:
        shown = style()
        lines = [*sweep_text.summary(result, shown)]
        if smallest is not None:
            lines += ["", *sweep_text.smallest_lines(smallest, shown)]
        if cheap is not None:
            lines += ["", *sweep_text.cheapest_lines(cheap, args.cheapest, shown)]
        print("\n".join(lines))


def _write_page(args: Args, result: SweepResult, prices: dict[str, float]) -> None:
    if args.html is None:
        return
    from fastplan.sweep.html import write_page
    from fastplan.sweep.plan_files import folder_beside

    folder = folder_beside(args.html)
    with Progress("writing the page", len(result.rows)) as progress:
        write_page(result, args.html, prices=prices, plans=folder, progress=progress.advance)
    if not args.json and not args.csv:
        print_written(args.html, folder)


def _exit_code(result: SweepResult) -> int:
    unstored = result.unstored
    if unstored:
        problem = f"the cache failed for {len(unstored)} of {len(result.rows)} cells"
        warn(f"error: {problem}: {unstored[0].warning or ''}")
    return FAILED if unstored or result.failed else OK


def _loader(args: Args) -> Callable[[str], ModelSpec]:
    """Returns a function that exports models that a sweep names as package.module:function."""

    def export(target: str) -> ModelSpec:
        if not args.trust_code:
            from fastplan.model.references import CodeNotTrusted

            raise CodeNotTrusted(target)
        from fastplan.torchrec.models import export_model

        return export_model(target)

    return export


def _prices(args: Args, sweep: Sweep, chosen: list[Cell]) -> dict[str, float]:
    """Returns prices by the names of SKUs, which may have other spellings on the command line.

    Raises MissingPrice for a price that --cheapest may need, before the long planning starts.
    """
    from fastplan.spec.hardware import HardwareError, find_hardware
    from fastplan.sweep.queries import no_price

    of_cells = {cell.sku for cell in chosen}
    own = {sku.name for sku in sweep.skus} or of_cells
    prices = {}
    for name, price in args.price:
        known = name
        if name not in own:
            try:
                known = find_hardware(name).name
            except HardwareError:
                known = ""
        if known not in own:
            there = ", ".join(sorted(own))
            raise CommandError(f"--price {name}: the sweep has no such SKU, but {there}")
        prices[known] = price
    priced = {sku.name for sku in sweep.skus if sku.price is not None}
    missing = sorted(of_cells - priced - prices.keys())
    if args.cheapest is not None and missing:
        raise no_price(missing)
    return prices
