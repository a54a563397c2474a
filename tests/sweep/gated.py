"""`fastplan precompute` with workers that wait to be let go on: see workers.gated."""

from __future__ import annotations

import sys

from fastplan.cli.main import main
from fastplan.sweep import pool as sweep_pool
from tests.sweep.workers import gated

if __name__ == "__main__":
    sweep_pool.work = gated
    sys.exit(main(["precompute", *sys.argv[1:]]))
