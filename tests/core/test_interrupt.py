"""Ctrl-C stops a long native search, whatever it is busy with."""

import subprocess
import sys

import pytest

# Searching all of it would take minutes. The signal comes from a thread of the process itself,
# which can only run because the search does not hold the GIL.
SEARCH = """
import os, signal, threading

from fastplan.core.problem import Problem
from fastplan.core.solve import estimate, solve
from fastplan.spec.request import Partitioner, Proposer, Search
from tests.plans.samples import cluster_of
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, table

# A shell that starts a job in the background has it ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def problem(count, ranks=8, types=ALL_TYPES, rows=1000):
    tables = [table(f"t{{i}}", rows + i, 64, pooling=1.0 + i) for i in range(count)]
    return Problem(estimate(request(tables, ranks, 4, types)), cluster_of(ranks, 4))


def searched(proposer):
    return Search(proposers=(proposer,), partitioner=Partitioner())


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
