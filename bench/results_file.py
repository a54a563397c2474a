"""A benchmark's result: measured and written to a file, or shown from that file."""

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from bench.machine import RESULTS, describe

Result = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser, file: str) -> None:
    """The options that `measured_or_shown` reads."""
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help=f"folder of {file} (default bench/results)",
    )
    parser.add_argument("--show", action="store_true", help=f"only print the tables of {file}")


def measured_or_shown(
    arguments: argparse.Namespace,
    file: str,
    measure: Callable[[], Result],
    report: Callable[[Result], str],
    failed: Callable[[Result], bool] | None = None,
) -> int:
    """Measures, writes and prints, or just prints; returns the exit code.

    An interrupt writes nothing. SIGTERM ends as Ctrl-C does, so that whatever `measure` has started
    can be ended. The exit code is 1 if the result has `failed`, by default if its cells have
    differences.
    """
    path = arguments.output / file
    if arguments.show:
        if not path.exists():
            print(f"{path} is not there: measure first, without --show", file=sys.stderr)
            return 2
        print(report(json.loads(path.read_text())))
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        result = {**describe(), **measure()}
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(report(result))
    return 1 if (failed or _differs)(result) else 0


def _differs(result: Result) -> bool:
    return any(cell["differences"] for cell in result.get("cells", []))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Not by way of SIGINT, which a process in the background may ignore.
    raise KeyboardInterrupt
