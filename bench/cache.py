"""Times starts with a stored plan, and the broadcast of a collective start.

There are three parts: TorchRec's full plan and PlanLoader hit, compared with fastplan's cold plan
and its hits from a directory, from memory and through fsspec; the bytes and the time of a broadcast
of each side's plan; and hits in a directory with a growing number of entries.
"""

import argparse
import sys
from typing import Any

from bench.arguments import (
    add_grid,
    add_name,
    add_repetitions,
    add_torchrec_limit,
    at_least_one,
    new_parser,
    parse_grid,
)
from bench.cache_broadcast import measure_broadcast
from bench.cache_entries import measure_entries
from bench.cache_hits import Limits, measure_hits
from bench.cache_report import all_differences, derived, report
from bench.estimate import Estimate
from bench.planning import make_case
from bench.results_file import add_arguments, measured_or_shown

GRID = "26x8,100x16,1000x64"
BROADCAST = "1000x64,1000x256,1000x1024"
ENTRIES = "10,1000,100000"
ENTRIES_CELL = (100, 16)
MOST_BROADCASTS = 5  # the largest takes TorchRec five seconds
PARTS = ("hits", "broadcast", "entries")


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(
        arguments,
        f"{arguments.name}.json",
        lambda: _measure(arguments),
        report,
        failed=lambda result: bool(all_differences(result)),
    )


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {
        "torchrec_limit_seconds": arguments.torchrec_limit,
        "hits": _hits(arguments) if "hits" in arguments.parts else [],
        "broadcast": _broadcast(arguments) if "broadcast" in arguments.parts else [],
        "entries": _entries(arguments) if "entries" in arguments.parts else None,
    }
    result["checks"] = derived(result)
    return result


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.cache", __doc__)
    add_grid(parser, GRID, " of plans and hits; 26 tables are Criteo's")
    parser.add_argument(
        "--broadcast-grid",
        type=parse_grid,
        default=parse_grid(BROADCAST),
        metavar="CELLS",
        help=f"tables x ranks of broadcasts (default {BROADCAST})",
    )
    parser.add_argument(
        "--entries",
        type=_counts,
        default=_counts(ENTRIES),
        metavar="COUNTS",
        help=f"numbers of entries in a directory (default {ENTRIES})",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="what to measure (default: all)",
    )
    add_torchrec_limit(parser)
    parser.add_argument(
        "--torchrec-hits",
        type=at_least_one,
        default=3,
        metavar="N",
        help="TorchRec's PlanLoader hits, fewer if they would exceed the limit (default 3)",
    )
    add_repetitions(parser, 15, "runs of fastplan, packs and unpacks")
    add_name(parser, "cache")
    add_arguments(parser, "NAME.json")
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if 0 in counts:
        raise argparse.ArgumentTypeError(f"{text!r} must be counts of at least 1, e.g. 10,1000")
    return list(dict.fromkeys(counts))


def _hits(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    estimate = Estimate()
    limits = Limits(arguments.torchrec_limit, arguments.torchrec_hits)
    return [
        measure_hits(make_case(*cell), arguments.repetitions, limits, estimate)
        for cell in arguments.grid
    ]


def _broadcast(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    repetitions = min(arguments.repetitions, MOST_BROADCASTS)
    return [measure_broadcast(*cell, repetitions) for cell in arguments.broadcast_grid]


def _entries(arguments: argparse.Namespace) -> dict[str, Any]:
    return measure_entries(make_case(*ENTRIES_CELL), arguments.entries, arguments.repetitions)


if __name__ == "__main__":
    sys.exit(main())
