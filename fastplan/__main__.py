"""`python -m fastplan`."""

from __future__ import annotations

from fastplan.cli.main import run

if __name__ == "__main__":
    run()
