"""`python -m fastplan`."""

from __future__ import annotations

import sys

from fastplan.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
