"""Runs the benchmarks one after the other, and writes docs/results.md from their results.

python -m bench                  runs all benchmarks
python -m bench planning cache   runs some
python -m bench --page           runs none, writes the page from the existing results
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
    parser.add_argument("parts", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--page", action="store_true", help="only write docs/results.md")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in names]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; choose from {', '.join(names)}")
    return arguments


def _run(part: Part) -> tuple[float, int]:
    """Returns seconds and exit code. A failure does not stop the other benchmarks."""
    begin = time.monotonic()
    code = subprocess.run(page.command(part), env=page.environment(part)).returncode
    return time.monotonic() - begin, code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the results of finished benchmarks are kept")
