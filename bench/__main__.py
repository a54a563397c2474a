"""Runs every benchmark, one after the other, and writes docs/results.md from what they found.

python -m bench                  all of them
python -m bench planning cache   some of them
python -m bench --page           the page alone, from the results that are there
"""

import argparse
import subprocess
import sys
import time

from bench import page
from bench.parts import PARTS, Part
from bench.text import table


def main() -> int:
    arguments = _arguments()
    failed = False
    if not arguments.page:
        chosen = [part for part in PARTS if not arguments.parts or part.name in arguments.parts]
        rows = []
        for number, part in enumerate(chosen, 1):
            print(f"\n== {number} of {len(chosen)}: {part.name}", flush=True)
            seconds, code = _run(part)
            failed |= code != 0
            rows.append([part.name, f"{seconds:.0f} s", f"exit code {code}" if code else "ok"])
        print(f"\n{table(['benchmark', 'took', ''], rows, left=(0, 2))}")
    page.write()
    return int(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--page", action="store_true", help="run nothing, write docs/results.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in names]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(names)}")
    return arguments


def _run(part: Part) -> tuple[float, int]:
    """Seconds and exit code; one that fails does not stop the others."""
    begin = time.monotonic()
    code = subprocess.run(page.command(part), env=page.environment(part)).returncode
    return time.monotonic() - begin, code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: results of benchmarks that were finished are kept")
