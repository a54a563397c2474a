"""The cost of a step with every exporter on, and of one export.

The same loop of steps is timed with the recorder, and with the recorder and a text file, an HTTP
endpoint, and OTLP to a port where nobody listens; less the empty loop. CPU time counts all threads
of the process. An export runs every 15 s by default and is measured separately.
"""

import argparse
import os
import statistics
import sys
import time
import urllib.request
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any

from bench.arguments import add_repetitions, new_parser
from bench.progress import Progress
from bench.results_file import add_arguments, measured_or_shown
from bench.text import table
from fastplan import ett
from fastplan.ett import recording
from fastplan.ett.exporters.thread import INTERVAL

FILE = "ett_exporters.json"
STATES = ("recorder", "recorder and exporters")


def main() -> int:
    arguments = _arguments()
    return measured_or_shown(arguments, FILE, lambda: _measure(arguments), _report)


def _arguments() -> argparse.Namespace:
    parser = new_parser("bench.ett_exporters", __doc__)
    parser.add_argument("--steps", type=int, default=200_000, metavar="N", help="of a timing")
    add_repetitions(parser, 9, "of each timing")
    add_arguments(parser, FILE)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[float]] = {state: [] for state in STATES}
    with Progress(f"{arguments.repetitions} x {arguments.steps:,} steps"):
        for _ in range(arguments.repetitions):
            for state in STATES:
                found[state].append(_step_cost(state == STATES[1], arguments.steps))
    costs = {
        state: {"median": statistics.median(times), "least": min(times), "most": max(times)}
        for state, times in found.items()
    }
    return {
        "repetitions": arguments.repetitions,
        "costs": costs,
        "export_ms": _export_cost(arguments.repetitions),
    }


def _step_cost(exporting: bool, steps: int) -> float:
    """Nanoseconds of CPU per step, more than the empty loop."""
    with TemporaryDirectory(prefix="fastplan-ett-") as folder:
        wanted = [f"textfile:{folder}/prom", "http:0", "otlp:http://127.0.0.1:1"]
        ett.start(folder, export=wanted if exporting else [])
        running = recording._exports
        if running is not None:
            running.opened.wait()
        ett.step(0)
        empty = time.process_time_ns()
        for _ in range(steps):
            pass
        begin = time.process_time_ns()
        for number in range(1, steps + 1):
            ett.step(number)
        end = time.process_time_ns()
        ett.stop()
    return ((end - begin) - (begin - empty)) / steps


def _export_cost(repetitions: int) -> dict[str, float]:
    """Milliseconds of CPU of one export of all three, for a file of 2000 lines."""
    times = []
    with TemporaryDirectory(prefix="fastplan-ett-") as folder:
        wanted = [f"textfile:{folder}/prom", "http:0", "otlp:http://127.0.0.1:1"]
        os.environ[INTERVAL] = "3600"
        ett.start(folder, export=wanted)
        running = recording._exports
        assert running is not None
        running.opened.wait()
        for number in range(2000):
            with ett.phase("eval", number=number):
                ett.step(number)
        port = next(e.port for words, e in running.exporters if words.startswith("http"))
        for _ in range(repetitions):
            begin = time.process_time()
            running._export(True)
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()
            times.append(1000 * (time.process_time() - begin))
        ett.stop()
    return {"median": statistics.median(times), "least": min(times), "most": max(times)}


def _report(result: dict[str, Any]) -> str:
    rows = [
        [name, f"{cost['median']:.0f} ns", f"{cost['least']:.0f} - {cost['most']:.0f} ns"]
        for name, cost in result["costs"].items()
    ]
    export = result["export_ms"]
    titles = [f"a step, n = {result['repetitions']}", "median", "least - most"]
    return (
        f"{table(titles, rows)}\n\n"
        f"an export to all three takes {export['median']:.1f} ms of CPU "
        f"({export['least']:.1f} - {export['most']:.1f}) for a file of 4,000 lines"
    )


if __name__ == "__main__":
    sys.exit(main())
