"""`fastplan precompute`: plans models on many clusters, and fills a cache with the plans."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastplan.cli import optimizing
from fastplan.cli.errors import FAILED, INTERRUPTED, OK, CommandError, UsageError
from fastplan.cli.outputs import check_outputs
from fastplan.cli.parser import add_cache_choice
from fastplan.cli.targets import add_trust_argument

if TYPE_CHECKING:
    from fastplan.report.terminal import Style
    from fastplan.spec.model import ModelSpec
    from fastplan.sweep.rows import SweepResult
    from fastplan.sweep.sweep import Cell, Sweep

HELP = (
    "Plans every combination of models, SKUs, world sizes, batch sizes and precisions that a sweep "
    "file lists, tells which fit and how fast they are, and keeps the plans in a cache. It goes on "
    "where it was stopped. docs/precompute.md has the fields of a sweep file."
)
EXAMPLES = """
fastplan precompute sweep.yaml --cache s3://bucket/plans --results results.jsonl
fastplan precompute sweep.yaml --smallest
fastplan precompute sweep.yaml --cheapest 15 --price h100=2.5 --price a100-80=1.4
fastplan precompute sweep.yaml --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT --cache /shared
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="FILE", help="what to plan: models, skus, ...")
    add_cache_choice(parser)
    parser.add_argument(
        "--results", metavar="FILE", help="keep results there, and take over those that it has"
    )
    parser.add_argument(
        "--jobs", type=_count, metavar="N", help="processes; default: one for each core"
    )
    parser.add_argument(
        "--shard", type=_shard, default=(0, 1), metavar="I/N", help="just this part: 0/N to N-1/N"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the cells and plan nothing")
    add_trust_argument(parser)
    optimizing.add_arguments(parser, rules=False)
    answers = parser.add_argument_group("answers")
    output = answers.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print everything as JSON")
    output.add_argument("--csv", action="store_true", help="print a line for each cell")
    answers.add_argument(
        "--smallest", action="store_true", help="name the smallest cluster that fits"
    )
    answers.add_argument(
        "--cheapest",
        type=_rating,
        metavar="RATING",
        help="name the cheapest cluster with at most so many milliseconds",
    )
    answers.add_argument(
        "--price",
        type=_price,
        action="append",
        default=[],
        metavar="SKU=X",
        help="what a rank of a SKU costs by the hour",
    )


def run(args: Namespace) -> int:
    if args.csv and (args.smallest or args.cheapest is not None):
        raise UsageError("--csv lists cells only; --json has --smallest and --cheapest, too")
    if args.price and args.cheapest is None:
        raise UsageError("--price is for --cheapest RATING")
    check_outputs(args.results, inputs=[args.sweep])
    optimization = optimizing.settings_of(args)
    # Every worker would start as many threads as there are cores, and use none of them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from fastplan.report.terminal import Style
    from fastplan.sweep.file import read_sweep
    from fastplan.sweep.sweep import cells

    sweep = replace(read_sweep(args.sweep, _loader(args)), optimization=optimization)
    asked = cells(sweep, args.shard)
    prices = _prices(args, sweep, asked)
    style = Style.of(sys.stdout)
    if args.dry_run:
        _list(args, asked, style)
        return OK
    result = _run(args, sweep, asked)
    if result is None:
        return INTERRUPTED
    _print(args, result, prices, style)
    return _verdict(result)


def _run(args: Namespace, sweep: Sweep, asked: list[Cell]) -> SweepResult | None:
    """The result; None if it was interrupted, which is told."""
    from fastplan.cli.terminal import Progress
    from fastplan.sweep.rows import Row
    from fastplan.sweep.run import run_sweep

    where = None if args.no_cache else args.cache or os.environ.get("FASTPLAN_CACHE") or None
    done = 0
    try:
        with Progress("planning", len(asked)) as progress:

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
            )
    except KeyboardInterrupt:
        kept = " and ".join(place for place in (args.results, where) if place)
        print(
            f"\nfastplan: interrupted after {done} of {len(asked)} cells. "
            + (
                f"They are in {kept}: run the same command again to go on."
                if kept
                else "Nothing was kept: --results FILE or --cache WHERE would let it go on."
            ),
            file=sys.stderr,
        )
        return None


def _list(args: Namespace, asked: list[Cell], style: Style) -> None:
    from fastplan.sweep.text import cell_lines, cells_csv, cells_json

    if args.json:
        from json import dumps

        print(dumps(cells_json(asked), indent=2))
    elif args.csv:
        print(cells_csv(asked), end="")
    else:
        print("\n".join(cell_lines(asked, style)))


def _print(args: Namespace, result: SweepResult, prices: dict[str, float], style: Style) -> None:
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
        from json import dumps

        content: dict[str, Any] = sweep_text.to_json(result)
        if smallest is not None:
            content["smallest"] = [asdict(answer) for answer in smallest]
        if cheap is not None:
            content["cheapest"] = [asdict(answer) for answer in cheap]
        print(dumps(content, indent=2, allow_nan=False))
    else:
        lines = [*sweep_text.summary(result, style)]
        if smallest is not None:
            lines += ["", *sweep_text.smallest_lines(smallest, style)]
        if cheap is not None:
            lines += ["", *sweep_text.cheapest_lines(cheap, args.cheapest, style)]
        print("\n".join(lines))


def _verdict(result: SweepResult) -> int:
    from fastplan.report.names import escape_name

    unstored = result.unstored
    if unstored:
        print(
            f"fastplan: error: the cache failed for {len(unstored)} of {len(result.rows)} cells: "
            f"{escape_name(unstored[0].warning or '')}",
            file=sys.stderr,
        )
    return FAILED if unstored or result.failed else OK


def _loader(args: Namespace) -> Callable[[str], ModelSpec]:
    """What makes specs of the models that a sweep names as package.module:function."""

    def export(target: str) -> ModelSpec:
        if not args.trust_code:
            from fastplan.spec.references import CodeNotTrusted

            raise CodeNotTrusted(target)
        from fastplan.torchrec.models import export_model

        return export_model(target)

    return export


def _prices(args: Namespace, sweep: Sweep, asked: list[Cell]) -> dict[str, float]:
    """Prices by the SKUs' own names, whatever they are called on the command line. All that
    --cheapest may need must be there: planning takes long."""
    from fastplan.spec.hardware import HardwareError, find_hardware
    from fastplan.sweep.queries import no_price

    of_cells = {cell.sku for cell in asked}
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
    told = {sku.name for sku in sweep.skus if sku.price is not None}
    missing = sorted(of_cells - told - prices.keys())
    if args.cheapest is not None and missing:
        raise no_price(missing)
    return prices


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a number of at least 1")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ArgumentTypeError(f"{text!r} must be I/N with I from 0 to N-1, such as 0/16")
    return int(part), int(parts)


def _rating(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} must be a positive number of milliseconds")
    return value


def _price(text: str) -> tuple[str, float]:
    name, equals, price = text.rpartition("=")
    try:
        value = float(price)
    except ValueError:
        value = -1.0
    if not equals or not name or not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} must be SKU=PRICE, such as h100=2.5")
    return name, value
