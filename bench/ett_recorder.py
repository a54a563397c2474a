"""The cost of recording: time per event, and memory and disk for millions of events.

The same loop is timed without recording, with recording off and with recording on. The figures are
differences to the empty loop in CPU time, because other processes must not count.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.arguments import add_repetitions, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan import ett

LIMIT = 2000.0  # nanoseconds per event
FILE = "ett_recorder.json"


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    events = {
        "step": _step_loop,
        "phase": _phase_loop,
        "nested phases, each": _nested_loop,
    }
    costs = {}
    for name, loop in events.items():
        with Progress(f"{name}: {arguments.repetitions} x {arguments.loops:,} events"):
            costs[name] = _costs(loop, arguments.loops, arguments.repetitions)
    with Progress(f"{arguments.events:,} events in one run"):
        many = _many(arguments.events)
    return {"repetitions": arguments.repetitions, "costs": costs, "many": many}


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.ett_recorder", __doc__)
    parser.add_argument("--events", type=int, default=10_000_000, metavar="N", help="of one run")
    parser.add_argument("--loops", type=int, default=100_000, metavar="N", help="events per timing")
    add_repetitions(parser, 15, "of each timing")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _empty_loop(count: int, first: int) -> int:
    for _ in range(first, first + count):
        pass
    return 1


def _step_loop(count: int, first: int) -> int:
    for number in range(first, first + count):
        ett.step(number)
    return 1


def _phase_loop(count: int, first: int) -> int:
    for _ in range(first, first + count):
        with ett.phase("data_wait"):
            pass
    return 1


def _nested_loop(count: int, first: int) -> int:
    for _ in range(first, first + count):
        with ett.phase("eval"), ett.phase("data_wait"):
            pass
    return 2


def _costs(loop: Callable[[int, int], int], count: int, repetitions: int) -> dict[str, Any]:
    """Nanoseconds per event, off and on; both take turns with the empty loop."""
    found: dict[str, list[float]] = {"off": [], "on": []}
    with TemporaryDirectory(prefix="fastplan-ett-") as directory:
        for repetition in range(repetitions):
            for state, times in found.items():
                if state == "on":
                    ett.start(directory, attempt=repetition)
                    ett.step(0)
                empty = _timed(_empty_loop, count)
                times.append(_timed(loop, count) - empty)
                ett.stop()
    return {
        state: {"median": statistics.median(times), "least": min(times), "most": max(times)}
        for state, times in found.items()
    }


def _timed(loop: Callable[[int, int], int], count: int) -> float:
    begin = time.process_time_ns()
    events = loop(count, 1)
    return (time.process_time_ns() - begin) / (count * events)


def _many(count: int) -> dict[str, Any]:
    """Memory and disk for this number of events, half of them steps and half of them phases."""
    with TemporaryDirectory(prefix="fastplan-ett-") as directory:
        path = ett.start(directory)
        assert path is not None
        _both(10_000, 0)
        before = _peak()
        begin = time.process_time()
        _both(count // 2, 10_000)
        seconds = time.process_time() - begin
        grown = _peak() - before
        ett.stop()
        return {
            "events": count,
            "seconds": seconds,
            "memory_bytes": grown,
            "file_bytes": Path(path).stat().st_size,
        }


def _both(count: int, first: int) -> None:
    for number in range(first, first + count):
        with ett.phase("data_wait"):
            pass
        ett.step(number)


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _report(result: dict[str, Any]) -> str:
    rows = []
    for name, states in result["costs"].items():
        on, off = states["on"], states["off"]
        rows.append(
            [
                name,
                f"{off['median']:.0f} ns",
                f"{on['median']:.0f} ns",
                f"{on['least']:.0f} - {on['most']:.0f}",
                "yes" if on["median"] < LIMIT else "NO",
            ]
        )
    titles = [f"event, n = {result['repetitions']}", "off", "on", "least - most"]
    titles.append(f"below {LIMIT / 1000:.0f} us")
    many = result["many"]
    return (
        f"{table(titles, rows)}\n\n{many['events']:,} events in {many['seconds']:.1f} s: "
        f"{many['memory_bytes'] / 1024:,.0f} KiB more memory, a file of "
        f"{many['file_bytes'] / 1024:,.1f} KiB"
    )


if __name__ == "__main__":
    sys.exit(main())
