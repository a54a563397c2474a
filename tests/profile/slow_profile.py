"""`fastplan profile` that says which batches it reads, with time between them.

The first word is the number of seconds after a batch, the second one the time that workers have to
stop. Workers import this module, too, so they read slowly.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from fastplan.cli.main import main
from fastplan.profile import run

PAUSE, LIMIT = map(float, sys.argv[1:3])
read = run.read_unit


def read_slowly(unit, features):
    for batch in read(unit, features):
        os.write(1, f"{unit.file}\n".encode())  # at once: print() can mix lines of processes
        yield batch
        time.sleep(PAUSE)


run.read_unit = read_slowly
run._STOP_SECONDS = LIMIT

if __name__ == "__main__":
    # A shell ignores interrupts for what it starts in the background, such as the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(["profile", *sys.argv[3:]]))
