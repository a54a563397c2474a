"""Ctrl-C stops a long native search."""

import subprocess
import sys

# Searching all of it would take minutes. The signal comes from a thread of the process itself,
# which can only run because the search does not hold the GIL.
SEARCH = """
import os, signal, threading

from fastplan.core.problem import Problem
from fastplan.core.solve import estimate, solve
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, request, small_problem, table

# A shell that starts a job in the background has it ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
tables = [table(f"t{i}", 1000 + i, 64, pooling=1.0 + i) for i in range(4000)]
cluster = small_problem(rank_hbm=(1 << 42,) * 8).cluster
problem = Problem(estimate(request(tables, 8, 4, ALL_TYPES)), cluster)
interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
try:
    interrupt.start()
    solve(problem, DEFAULT_SEARCH, exhaustive=True)
    print("finished")
except KeyboardInterrupt:
    print("stopped")
"""


def test_an_interrupt_ends_the_search_with_keyboard_interrupt():
    result = subprocess.run(
        [sys.executable, "-c", SEARCH], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout == "stopped\n"
