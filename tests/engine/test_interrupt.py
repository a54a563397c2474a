"""Ctrl-C stops a long native search, whatever it is busy with."""

import subprocess
import sys

import pytest

PROBLEMS = """
import itertools, os, signal, threading, time

from fastplan.engine.problem import Problem
from fastplan.engine.solve import count_plans, estimate, propose, solve
from fastplan.model.request import Partitioner, Proposer, Search
from tests.plans.samples import cluster_of
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table


def problem(count, ranks=8, types=ALL_TYPES, rows=1000):
    tables = [table(f"t{{i}}", rows + i, 64, pooling=1.0 + i) for i in range(count)]
    return Problem(estimate(request(tables, ranks, 4, types)), cluster_of(ranks, 4))


def searched(proposer):
    return Search(proposers=(proposer,), partitioner=Partitioner())
"""

# Searching all of it would take minutes. The signal comes from a thread of the process itself,
# which can only run because the search does not hold the GIL.
SEARCH = (
    PROBLEMS
    + """
# A shell that starts a job in the background has it ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def walked():
    small = problem(13, types=("table_wise", "row_wise"))
    solve(small, searched(Proposer(kind="grid", max_proposals=1 << 30)))


def programmed():
    large = problem(1000, 512, rows=10_000_000)
    solve(large, searched(Proposer(kind="dynamic_programming", bins_per_device=100)))


def placed():
    solve(problem(4000), DEFAULT_SEARCH, exhaustive=True)


interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
try:
    interrupt.start()
    {0}()
    print("finished")
except KeyboardInterrupt:
    print("stopped")
"""
)

# The kernel's clock ticks while the process computes, however busy the machine is; the handler runs
# when the core asks for signals.
TICKS = (
    PROBLEMS
    + """
ticks = []
signal.signal(signal.SIGVTALRM, lambda *_: ticks.append(time.process_time()))
tables = [table(f"t{{i}}", 2_000_000 * (i + 1), 64, pooling=1.0 + i) for i in range(150)]
large = Problem(estimate(request(tables, 8, 4, ALL_TYPES)), cluster_of(8, 4))
fine = Proposer(kind="dynamic_programming", bins_per_device=10_000)
begin = time.process_time()
signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)
{0}
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
end = time.process_time()
longest = max(b - a for a, b in itertools.pairwise([begin, *ticks, end]))
print("asked all the time" if longest < (end - begin) / 5 else f"{{longest}} of {{end - begin}}")
"""
)


@pytest.mark.parametrize("busy", ["placed", "walked", "programmed"])
def test_an_interrupt_ends_the_search_with_keyboard_interrupt(busy):
    result = subprocess.run(
        [sys.executable, "-c", SEARCH.format(busy)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stdout == "stopped\n"


@pytest.mark.parametrize(
    "busy",
    [
        "propose(large, fine, 0, 1)",
        "solve(large, searched(fine))",
        "count_plans(large, searched(fine))",
    ],
)
def test_fine_bins_are_never_long_without_asking_for_an_interrupt(busy):
    result = subprocess.run(
        [sys.executable, "-c", TICKS.format(busy)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert result.stdout == "asked all the time\n"
